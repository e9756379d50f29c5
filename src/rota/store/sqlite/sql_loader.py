"""Loads the queries and migrations from the files in `sql/`, once per process."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@cache
def queries() -> dict[str, str]:
    """The queries of `sql/queries.sql`, by name."""
    text = (files("rota.store.sqlite") / "sql" / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@dataclass(frozen=True, slots=True)
class Migration:
    """A migration to schema `version` from the version before it."""

    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """The migrations of `sql/migrations`, by version."""
    folder = files("rota.store.sqlite") / "sql" / "migrations"
    matches = ((path, _FILE.fullmatch(path.name)) for path in folder.iterdir())
    found = [
        Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
        for path, match in matches
        if match
    ]
    return tuple(sorted(found, key=lambda each: each.version))
