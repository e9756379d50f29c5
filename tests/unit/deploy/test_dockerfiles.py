"""The Dockerfiles copy existing files, run as an unprivileged user and use pinned sources."""

from __future__ import annotations

import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT

FILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))


def instructions(path: Path) -> list[tuple[str, str]]:
    """Instruction and arguments, without comments and with joined lines."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    whole = "\n".join(lines).replace("\\\n", " ")
    parted = (line.split(maxsplit=1) for line in whole.splitlines() if line.strip())
    return [(word.upper(), rest) for word, rest in parted]


def ignored(path: str) -> bool:
    """Whether .dockerignore excludes the path: the last matching line decides."""
    found = False
    for line in (ROOT / ".dockerignore").read_text().split():
        pattern = line.removeprefix("!")
        if any(fnmatch(each, pattern) for each in (path, path.split("/", maxsplit=1)[0])):
            found = not line.startswith("!")
    return found


def test_there_are_two_images() -> None:
    assert [path.name for path in FILES] == ["daemon.Dockerfile", "training.Dockerfile"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_copied_files_exist_and_are_not_ignored(path: Path) -> None:
    copies = [rest.split() for word, rest in instructions(path) if word == "COPY"]
    sources = [each for words in copies for each in words[:-1] if not words[0].startswith("--")]
    assert sources
    assert [each for each in sources if not (ROOT / each).exists()] == []
    assert [each for each in sources if ignored(each)] == []
    stages = {rest.split()[-1] for word, rest in instructions(path) if word == "FROM"}
    others = {words[0].removeprefix("--from=") for words in copies if words[0].startswith("--")}
    assert others <= stages


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_last_stage_runs_as_an_unprivileged_user(path: Path) -> None:
    found = instructions(path)
    last = max(number for number, (word, _) in enumerate(found) if word == "FROM")
    users = [rest for word, rest in found[last:] if word == "USER"]
    assert users
    assert re.fullmatch(r"[1-9][0-9]*:[1-9][0-9]*", users[-1])
    # Compilers, caches and sources stay behind in the stage before.
    assert [rest for word, rest in found[last:] if "pip" in rest] == []


def test_jobs_do_not_use_the_uid_of_the_daemon() -> None:
    daemon, training = (
        {rest for word, rest in instructions(path) if word == "USER"} for path in FILES
    )
    assert not daemon & training


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_base_images_have_plain_names_and_nothing_is_added_by_url(path: Path) -> None:
    found = instructions(path)
    defaults = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
    bases = [rest.split()[0] for word, rest in found if word == "FROM"]
    named = [re.sub(r"\$\{(\w+)\}", lambda match: defaults[match[1]], each) for each in bases]
    assert all(re.fullmatch(r"[a-z0-9-]+:[a-z0-9.-]+", each) for each in named)
    assert "ADD" not in [word for word, _ in found]
    assert "://" not in "".join(rest for _, rest in found)
