"""Writing SVG and HTML by hand: numbers, escaping, elements.

Names come from users and traces, and those from anywhere: every text goes through `safe`.
"""

from __future__ import annotations

import html
import unicodedata
from dataclasses import dataclass

LONGEST_NAME = 80
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Frame:
    """The part of a drawing inside its axes."""

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
        """Where a part of the whole (0 to 1) lies, from the bottom up."""
        return self.bottom - part * self.height


def num(value: float) -> str:
    """A coordinate with at most two decimals, the same on every machine."""
    without_minus_zero = round(value, 2) + 0.0
    return f"{without_minus_zero:.2f}".rstrip("0").rstrip(".")


def safe(text: str, longest: int = LONGEST_NAME) -> str:
    """Text that can do nothing but be read: escaped, of bounded length, and without the control,
    direction and surrogate characters that break a file or make it read differently."""
    shown = text if len(text) <= longest else text[: longest - 1] + "…"
    if not shown.isprintable():
        shown = "".join(
            REPLACEMENT if unicodedata.category(char)[0] == "C" else char for char in shown
        )
    return html.escape(shown)


def tag(name: str, attributes: str = "", *children: str) -> str:
    """An element; children are markup, already escaped."""
    start = f"{name} {attributes}" if attributes else name
    return f"<{start}>{''.join(children)}</{name}>"


def label(at: tuple[float, float], text: str, *, kind: str) -> str:
    """A line of text in a chart, placed by its class."""
    x, y = at
    return tag("text", f'class="{kind}" x="{num(x)}" y="{num(y)}"', safe(text))


def grid_line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x1, y1), (x2, y2) = start, end
    return f'<line class="grid" x1="{num(x1)}" y1="{num(y1)}" x2="{num(x2)}" y2="{num(y2)}"></line>'


def page(*children: str, size: tuple[float, float], title: str, style: str) -> str:
    """A drawing that is a file of its own."""
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
    """A whole drawing with the sentence that stands for it where it cannot be seen."""
    width, height = size
    return tag(
        "svg",
        f'class="{kind}" viewBox="0 0 {num(width)} {num(height)}" role="img"',
        tag("title", "", safe(title, 400)),
        *children,
    )
