"""Settings as a table, or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.cli.output.json import say_json
from rota.cli.output.table import Column, say_table
from rota.cli.output.times import amount

if TYPE_CHECKING:
    from rota.config.load import Setting


def say_settings(settings: Sequence[Setting], *, has_origin: bool, as_json: bool) -> None:
    if as_json:
        say_json([_described(each, has_origin=has_origin) for each in settings])
        return
    columns = [
        Column("setting", tuple(each.name for each in settings), is_number=False),
        Column("value", tuple(_words(each) for each in settings), is_number=False),
    ]
    if has_origin:
        origins = tuple(each.origin for each in settings)
        columns.append(Column("origin", origins, is_number=False))
    say_table(columns)


def _described(setting: Setting, *, has_origin: bool) -> dict[str, object]:
    described: dict[str, object] = {"name": setting.name, "value": setting.value}
    return {**described, "origin": setting.origin} if has_origin else described


def _words(setting: Setting) -> str:
    value = setting.value
    if isinstance(value, tuple):
        return ", ".join(value) or "-"
    if isinstance(value, float):
        return f"{value:g}s"
    if isinstance(value, int) and setting.name.endswith("_size"):
        return amount(value)
    return str(value) if value != "" else "-"
