"""Patterns of a .rotaignore."""

from __future__ import annotations

from pathlib import Path

import pytest

from rota.client.ignore_file import DEFAULT_IGNORE, ignore_of
from rota.errors import InputError, UserError


@pytest.mark.parametrize(
    ("line", "skipped", "kept"),
    [
        ("data", ["data", "a/data", "data/"], ["data2", "a/mydata"]),
        ("data/", ["data/", "a/data/"], ["data", "a/data"]),
        ("/data", ["data", "data/"], ["a/data"]),
        ("a/data", ["a/data"], ["data", "b/a/data"]),
        ("*.pt", ["x.pt", "a/b/.pt", ".pt"], ["x.ptx", "pt"]),
        ("a/*.pt", ["a/x.pt"], ["a/b/x.pt", "x.pt"]),
        ("run?", ["run1", "a/runs"], ["run", "run12", "a/run/"]),
        ("[a-c]x", ["ax", "cx"], ["dx", "x", "-x"]),
        ("[!a-c]x", ["dx", "-x"], ["ax", "x", "a/x"]),
        ("[]a]x", ["]x", "ax"], ["bx"]),
        ("[--]x", ["-x"], ["bx"]),
        (r"\[x", ["[x"], ["x"]),
        ("**/data", ["data", "a/data", "a/b/data"], ["a/data2"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["b", "xa/b", "a/xb"]),
        ("a/**", ["a/x", "a/x/y"], ["a", "a/", "b/a/x"]),
        ("**", ["a", "a/b", "a/"], []),
        (r"\#x", ["#x"], ["x"]),
        (r"\!x", ["!x"], ["x"]),
        (r"\*", ["*"], ["x"]),
        ("a b  ", ["a b"], ["a b  "]),
        ("x.y", ["x.y"], ["xzy"]),
        ("# data", [], ["data", "# data"]),
    ],
)
def test_patterns(tmp_path: Path, line: str, skipped: list[str], kept: list[str]):
    """A path with a slash at its end is a directory."""
    (tmp_path / ".rotaignore").write_text(f"\n{line}\n")
    ignore = ignore_of(tmp_path, ())

    def is_skipped(path: str) -> bool:
        return ignore.skips(path.rstrip("/"), is_folder=path.endswith("/"))

    assert [path for path in skipped if not is_skipped(path)] == []
    assert [path for path in kept if is_skipped(path)] == []


def test_last_matching_pattern_decides(tmp_path: Path):
    (tmp_path / ".rotaignore").write_text("*.log\n!keep.log\n!node_modules\n")
    ignore = ignore_of(tmp_path, DEFAULT_IGNORE)
    paths = ["x.log", "keep.log", "a/keep.log", "node_modules", "a/.git", "a/b.pyc", "b.py"]
    skipped = [path for path in paths if ignore.skips(path, is_folder=False)]
    assert skipped == ["x.log", "a/.git", "a/b.pyc"]


def test_a_file_in_a_directory_with_all_files_excluded_can_be_included(tmp_path: Path):
    (tmp_path / ".rotaignore").write_text("a/**\n!a/keep\n")
    ignore = ignore_of(tmp_path, ())
    assert not ignore.skips("a", is_folder=True)
    assert ignore.skips("a/x", is_folder=False)
    assert not ignore.skips("a/keep", is_folder=False)


@pytest.mark.parametrize("line", ["/", "!", "!/", "x\\", "[z-a]", "[]", "[x"])
def test_invalid_patterns(tmp_path: Path, line: str):
    (tmp_path / ".rotaignore").write_text(f"ok\n{line}\n")
    with pytest.raises(InputError, match=r"\.rotaignore, row 2: "):
        ignore_of(tmp_path, ())


def test_invalid_files(tmp_path: Path):
    file = tmp_path / ".rotaignore"
    file.write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        ignore_of(tmp_path, ())
    file.write_bytes(b"x\n" * 40_000)
    with pytest.raises(InputError, match="larger than 64 KiB"):
        ignore_of(tmp_path, ())
    file.unlink()
    file.mkdir()
    with pytest.raises(UserError, match="make the file readable"):
        ignore_of(tmp_path, ())


PATTERNS = {
    "letters between": "*a" * 30 + "x",
    "adjacent": "*" * 30 + "x",
    "question marks between": "*?" * 30 + "x",
    "folders": "/**/".join(["a"] * 30) + "/x",
}


@pytest.mark.parametrize("line", PATTERNS.values(), ids=PATTERNS)
def test_patterns_with_thirty_stars_end(tmp_path: Path, line: str):
    """Without the atomic groups, these take longer than a life."""
    (tmp_path / ".rotaignore").write_text(line)
    ignore = ignore_of(tmp_path, ())
    assert not ignore.skips("a" * 200, is_folder=False)
    assert not ignore.skips("a/" * 40 + "a", is_folder=False)


def test_many_stars_match_what_they_should(tmp_path: Path):
    (tmp_path / ".rotaignore").write_text("*a*b*a*\na/**/bb/**/c\n")
    ignore = ignore_of(tmp_path, ())
    paths = ["aba", "xaxbxax", "abba", "d/bab-a", "baab", "a/bbx/bb/c", "a/x/bb/y/z/c", "a/bbc/c"]
    assert [path for path in paths if ignore.skips(path, is_folder=False)] == [
        *("aba", "xaxbxax", "abba", "d/bab-a", "a/bbx/bb/c", "a/x/bb/y/z/c"),
    ]


def test_a_byte_order_mark_belongs_to_no_pattern(tmp_path: Path):
    (tmp_path / ".rotaignore").write_bytes(b"\xef\xbb\xbfdata\n")
    assert ignore_of(tmp_path, ()).skips("data", is_folder=False)
