"""The headings of tables and the labels of `rota show` are names of the JSON output."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.golden.conftest import Rota
from tests.tidy.json_schemas import SCHEMAS

TABLES = {
    "list": ["--all"],
    **{key: ["bert"] for key in ("show", "story", "cancel", "hold", "release", "profile")},
    "resize": ["bert", "2"],
    **{key: [] for key in ("top", "nodes list", "policy list", "token list")},
    **{key: ["box"] for key in ("nodes drain", "nodes resume", "nodes lost")},
    "token revoke": ["55667788"],
    "config show": ["--origin"],
    "simulate": ["synthetic:jobs=5,seed=1", "--cluster", "1x4"],
}
MORE_WORDS = {
    # The kinds of a figure, and a table that sums up the metrics of `steps`.
    "profile": {"measured", "fitted", "metric", "first", "min", "max", "latest"},
    # Titles of tables, and units.
    "simulate": {
        *[
            "Completion",
            "time",
            "Cluster",
            "and",
            "fairness",
            "Changes",
            "Decision",
            "s",
            "min",
            "h",
            "GPU",
            "%",
            "x",
            "ms",
        ]
    },
}


def properties(schema: Any) -> Iterator[str]:
    """All names of fields, also of nested objects."""
    if isinstance(schema, list):
        for each in schema:
            yield from properties(each)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {})
        for each in schema.values():
            yield from properties(each)


def names(schema: Any) -> set[str]:
    """The names that a heading may have."""
    found: set[str] = set()
    for name in properties(schema):
        short = name.removesuffix("_s").removesuffix("_bytes").removeprefix("is_")
        found |= {name, short, short.replace("_ms_", "_")}
    return found


def headings(printed: str) -> Iterator[str]:
    """The words in the two lines above each rule, which are a title and headings, or headings."""
    lines = printed.splitlines()
    for number, line in enumerate(lines):
        if line and not line.strip("─"):
            yield from " ".join(lines[max(0, number - 2) : number]).split()


@pytest.mark.parametrize("name", TABLES)
def test_headings_are_names_of_the_json(rota: Rota, name: str) -> None:
    first, *verb = name.split()
    printed = rota(first, *verb, *TABLES[name])
    found = set(headings(printed))
    assert found
    assert found - names(SCHEMAS[name]) <= MORE_WORDS.get(name, set())


def test_headings_of_contexts_are_names_of_the_json(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    rota("context", "add", "lab", "https://lab.example")
    printed = rota("context", "list")
    assert set(headings(printed)) == {"current", "name", "url", "token"}
    assert set(headings(printed)) <= names(SCHEMAS["context list"])


def test_labels_of_show_are_names_of_the_json(rota: Rota) -> None:
    labels = [line.split()[0] for line in rota("show", "bert").split("\n\n")[0].splitlines()]
    assert len(labels) > 10
    assert set(labels) <= names(SCHEMAS["show"])
