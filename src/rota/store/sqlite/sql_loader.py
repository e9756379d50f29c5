"""Reads the SQL that rota uses from its files, once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@cache
def queries() -> dict[str, str]:
    """The blocks of `sql/queries.sql` by their names."""
    text = (files("rota.store") / "sql" / "queries.sql").read_text(encoding="utf-8")
    _, *parts = _NAME.split(text)
    return {name: sql.strip() for name, sql in zip(parts[::2], parts[1::2], strict=True)}


@dataclass(frozen=True, slots=True)
class Migration:
    """The step that leads to schema `version`."""

    version: int
    name: str
    sql: str


@cache
def migrations() -> tuple[Migration, ...]:
    """The files of `sql/migrations`, in their order."""
    folder = files("rota.store") / "sql" / "migrations"
    matches = ((path, _FILE.fullmatch(path.name)) for path in folder.iterdir())
    found = [
        Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
        for path, match in matches
        if match
    ]
    return tuple(sorted(found, key=lambda each: each.version))
