"""Helpers to write SVG and HTML: numbers, escaping, elements.

Names come from users and traces and are not trusted: every text goes through `safe`.
"""

from __future__ import annotations

import html
import unicodedata
from dataclasses import dataclass

MAX_NAME_CHARS = 80
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The area of a chart inside its axes."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def y(self, part: float) -> float:
        """The y coordinate of a value from 0 to 1, measured from the bottom."""
        return self.bottom - part * self.height


def num(value: float) -> str:
    """A coordinate with at most two decimals, equal on every machine."""
    without_minus_zero = round(value, 2) + 0.0
    return f"{without_minus_zero:.2f}".rstrip("0").rstrip(".")


def safe(text: str, longest: int = MAX_NAME_CHARS) -> str:
    """Text that is safe to insert: escaped, of limited length, and without control, direction and
    surrogate characters, which break a file or change how it reads."""
    result = text if len(text) <= longest else text[: longest - 1] + "…"
    if not result.isprintable():
        result = "".join(
            REPLACEMENT if unicodedata.category(char)[0] == "C" else char for char in result
        )
    return html.escape(result)


def tag(name: str, attributes: str = "", *children: str) -> str:
    """An element. Children are markup and already escaped."""
    start = f"{name} {attributes}" if attributes else name
    return f"<{start}>{''.join(children)}</{name}>"


def label(at: tuple[float, float], text: str, *, kind: str) -> str:
    """A line of text in a chart; its class positions it."""
    x, y = at
    return tag("text", f'class="{kind}" x="{num(x)}" y="{num(y)}"', safe(text))


def grid_line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="grid" x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"></line>'


def page(*children: str, size: tuple[float, float], title: str, style: str) -> str:
    """A complete drawing as a standalone file."""
    width, height = num(size[0]), num(size[1])
    return tag(
        "svg",
        f'xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img"',
        tag("title", "", safe(title, 400)),
        tag("style", "", style),
        *children,
    )


def figure(*children: str, size: tuple[float, float], title: str, kind: str = "") -> str:
    """A complete drawing to embed, with a title for readers who cannot see it."""
    width, height = size
    return tag(
        "svg",
        f'class="{kind}" viewBox="0 0 {num(width)} {num(height)}" role="img"',
        tag("title", "", safe(title, 400)),
        *children,
    )
