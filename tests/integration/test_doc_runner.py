"""The runner of documentation pages finds what differs from the page."""

import os
from pathlib import Path

from tests.support.doc_commands import run_page

PAGE = """
```sh
# hello.sh
echo one
echo two three
echo four
```

```console
$ sh hello.sh
one
two ...
$ echo \\
    more
more
$ false
$ echo $?
1
```

<!-- not run: needs a cluster -->
```console
$ exit 9
```
"""


def run(page: str, folder: Path) -> list[str]:
    return run_page(page, folder, env=dict(os.environ))


def test_a_right_page_has_no_differences(tmp_path: Path) -> None:
    assert run(PAGE, tmp_path) == []


def test_a_missing_line_is_found(tmp_path: Path) -> None:
    (found,) = run(PAGE.replace("two ...", "three ..."), tmp_path)
    assert "does not print 'three ...'" in found


def test_lines_in_another_order_are_found(tmp_path: Path) -> None:
    (found,) = run(PAGE.replace("one\ntwo ...", "four\none"), tmp_path)
    assert "does not print 'one'" in found


def test_a_failed_command_is_found(tmp_path: Path) -> None:
    (found,) = run("```console\n$ exit_code() { return 3; }; exit_code\n```\n", tmp_path)
    assert "exits with 3" in found


def test_a_page_that_ends_early_is_found(tmp_path: Path) -> None:
    found = run("```console\n$ exit 0\n$ echo more\n```\n", tmp_path)
    assert found[0].startswith("0 of 2 commands have ended")
