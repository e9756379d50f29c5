"""Markdown pages made of measured figures: the benchmarks write them to `docs/results`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).resolve().parent.parent / "docs" / "results"
NO_VALUE = "\N{EN DASH}"

Row = Sequence[str]


def table(header: Row, rows: Sequence[Row], *, texts: int = 1) -> str:
    """A Markdown table whose first `texts` columns are words and whose others are figures."""
    rule = ["---" if column < texts else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def page(*parts: str) -> str:
    """Paragraphs and tables with an empty line between any two."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def publish(text: str, path: Path) -> None:
    """Print a page and keep it."""
    print(text)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"written to {path}")


def whole(value: float | None) -> str:
    return NO_VALUE if value is None else f"{value:,.0f}"


def ratio(ours: float | None, theirs: float) -> str:
    return NO_VALUE if ours is None else f"{ours / theirs:.2f}"


def percent(value: float | None) -> str:
    return NO_VALUE if value is None else f"{100 * value:.0f} %"
