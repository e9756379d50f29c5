"""Reads the tables of the reference pages that are written by hand and checked by tests."""

import re

from tests.tidy.tree import ROOT

REFERENCE = ROOT / "docs" / "reference"


def rows(page: str, heading: str = "") -> list[list[str]]:
    """The cells of all rows of the tables below a heading, or of the whole page."""
    text = (REFERENCE / page).read_text()
    if heading:
        text = text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def first_column(page: str, heading: str = "") -> set[str]:
    """The names in backticks in the first column; a row may have several."""
    return {name for row in rows(page, heading) for name in re.findall(r"`([^`]+)`", row[0])}
