"""docs/reference/cli.md lists every command with its help text."""

from tests.support.cli_commands import commands
from tests.tidy.tree import ROOT

PAGE = ROOT / "docs" / "reference" / "cli.md"


def rows() -> list[str]:
    return [f"| `rota {name}` | {each.summary} |" for name, each in commands().items()]


def test_every_command_is_in_the_reference() -> None:
    text = PAGE.read_text() if PAGE.exists() else ""
    missing = [row for row in rows() if row not in text]
    assert not missing, f"put into {PAGE.name}:\n" + "\n".join(missing)


def test_the_reference_has_no_other_commands() -> None:
    listed = [line for line in PAGE.read_text().splitlines() if line.startswith("| `rota ")]
    known = rows()
    assert [line for line in listed if line not in known] == []
