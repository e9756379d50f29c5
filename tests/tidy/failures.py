"""Generates the table of known failures in docs/reference/failures.md."""

from pathlib import Path

from rota.daemon.diagnosis.catalogue import FAILURES
from tests.tidy.tree import ROOT

REFERENCE = ROOT / "docs" / "reference" / "failures.md"
BEGIN = "<!-- drawn from rota.daemon.diagnosis.catalogue by scripts/generate; do not edit -->"
END = "<!-- end of the table -->"


def generated_files() -> dict[Path, str]:
    return {REFERENCE: with_table(REFERENCE.read_text())}


def with_table(text: str) -> str:
    """The document with its generated table replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def table() -> str:
    rows = [
        "| name | what happened | what to do | tried again | signs in the log |",
        "| --- | --- | --- | --- | --- |",
    ]
    for each in FAILURES:
        signs = "; or ".join(str(sign) for sign in each.matchers)
        is_retried = "yes" if each.is_retriable else ""
        rows.append(f"| **{each.name}** | {each.message} | {each.hint} | {is_retried} | {signs} |")
    return "\n".join(rows)
