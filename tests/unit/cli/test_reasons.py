"""Why a job ended, in tables."""

from rota.cli.output.jobs import brief


def test_a_search_path_has_no_place_in_a_table() -> None:
    reason = "exit code 127: program 'x' was not found in PATH (/usr/bin:/bin); try again"
    assert brief(reason) == "exit code 127: program 'x' was not found in PATH; try again"
    assert brief("exit code 3 (of 4)") == "exit code 3 (of 4)"
