"""Signs that not every terminal has, and what stands for them where it has not."""

from __future__ import annotations

import sys

BAR_WIDTH = 10
EIGHTHS = " ▏▎▍▌▋▊▉█"
PLAIN_SIGNS = str.maketrans(
    {
        "─": "-",
        "│": "|",
        "┤": "|",
        "┬": "+",
        "└": "+",
        "●": "o",
        "○": "c",
        "·": ".",
        "…": "~",
        "±": "+-",
    }
)


def is_plain() -> bool:
    """Whether the output can show nothing but ASCII."""
    encoding = sys.stdout.encoding or "utf-8"
    return not encoding.lower().replace("-", "").startswith("utf")


def told(text: str) -> str:
    """Our own signs, in what the output can show."""
    return text.translate(PLAIN_SIGNS) if is_plain() else text


def percent(part: float | None) -> str:
    """Rounded down: only what is done is 100 %."""
    return "-" if part is None else f"{int(_within(part) * 100 + 1e-9)}%"


def progress(part: float | None) -> str:
    """A bar and its percentage on a terminal, the percentage alone elsewhere."""
    if part is None or not sys.stdout.isatty():
        return percent(part)
    return f"{bar(part, plain=is_plain())} {percent(part):>4}"


def bar(part: float, *, plain: bool) -> str:
    """Ten places; where the signs for it exist, to the eighth of a place."""
    if plain:
        full = int(_within(part) * BAR_WIDTH + 1e-9)
        return f"[{'#' * full}{'.' * (BAR_WIDTH - full)}]"
    eighths = int(_within(part) * BAR_WIDTH * 8 + 1e-9)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (EIGHTHS[rest] if rest else "")
    return drawn + "░" * (BAR_WIDTH - len(drawn))


def _within(part: float) -> float:
    return min(1.0, max(0.0, part))
