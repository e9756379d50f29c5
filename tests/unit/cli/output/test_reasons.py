"""Reasons in tables."""

from rota.cli.output.jobs import without_search_path


def test_search_path_is_left_out_of_tables() -> None:
    reason = "exit code 127: program 'x' was not found in PATH (/usr/bin:/bin); try again"
    assert (
        without_search_path(reason) == "exit code 127: program 'x' was not found in PATH; try again"
    )
    assert without_search_path("'x' not found in PATH (/usr/bin:/b...") == "'x' not found in PATH"
    assert without_search_path("exit code 3 (of 4)") == "exit code 3 (of 4)"
