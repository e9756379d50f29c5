"""Every command of rota in a `console` block of a document is one that the parser accepts."""

from pathlib import Path

import pytest

from rota.errors import UserError
from tests.support.doc_commands import DocCommand, check_command_line, rota_command_lines, steps
from tests.tidy.tree import project_files, relative

PAGES = [path for path in project_files() if path.suffix == ".md"]
HOW_TO = ("README.md", "docs/tutorial.md", "docs/how-to/")


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_are_accepted(page: Path) -> None:
    wrong: list[str] = []
    for step in steps(page.read_text()):
        if isinstance(step, DocCommand):
            for words in rota_command_lines(step.text):
                try:
                    check_command_line(words)
                except (UserError, AssertionError, StopIteration) as error:
                    wrong.append(f"rota {' '.join(words)}: {error}")
    assert not wrong, "\n".join(wrong)


def test_pages_for_users_have_console_blocks_only() -> None:
    """A block without a language that starts with rota is neither parsed nor run."""
    found = [
        relative(page)
        for page in PAGES
        if relative(page).startswith(HOW_TO) and "```\nrota " in page.read_text()
    ]
    assert not found, "write ```console and `$ rota`"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rota up --detach   # starts it", [["up", "--detach"]]),
        ("A=1 rota list | grep x && sudo rota down", [["list"], ["down"]]),
        ("rota store backup x > y", [["store", "backup", "x"]]),
        ("rota submit -- sh -c 'a; rota b'", [["submit", "--", "sh", "-c", "a; rota b"]]),
        ("kubectl get tj", []),
    ],
)
def test_rota_command_lines(line: str, expected: list[list[str]]) -> None:
    assert list(rota_command_lines(line)) == expected


@pytest.mark.parametrize("words", [["lost"], ["list", "--al"], ["nodes", "gone"], ["show"]])
def test_a_wrong_command_line_is_found(words: list[str]) -> None:
    with pytest.raises((UserError, AssertionError, StopIteration)):
        check_command_line(words)
