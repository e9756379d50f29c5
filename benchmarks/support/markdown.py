"""Writes the pages of docs/results: tables, numbers and the description of the machine."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def machine() -> str:
    return f"{os.cpu_count()} cores ({platform.machine()}), Python {platform.python_version()}"


MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Figure:
    value: float
    unit: str
    note: str = ""

    def __str__(self) -> str:
        digits = 0 if self.value >= 100 or self.value == int(self.value) else 1
        text = f"{self.value:,.{digits}f}"
        text += self.unit if self.unit.startswith("/") else f" {self.unit}"
        return f"{text.strip()} ({self.note})" if self.note else text.strip()


RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
NO_VALUE = "\N{EN DASH}"
Row = Sequence[str]


def table(header: Row, rows: Sequence[Row], *, texts: int = 1) -> str:
    """A Markdown table. The first `texts` columns are text, the others numbers."""
    rule = ["---" if column < texts else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (header, rule, *rows))


def page(*parts: str) -> str:
    """Join paragraphs and tables with empty lines."""
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def publish(text: str, path: Path) -> None:
    """Print a page and write it to its file."""
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
