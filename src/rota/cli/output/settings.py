"""Settings as a table or as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rota.cli.output.console import print_json
from rota.cli.output.format import amount
from rota.cli.output.table import Column, print_table

if TYPE_CHECKING:
    from rota.wire.daemon import SettingView

UNITS = {"d": 86400, "h": 3600, "m": 60}


def print_settings(settings: Sequence[SettingView], *, has_origin: bool, as_json: bool) -> None:
    if as_json:
        print_json([_described(each, has_origin=has_origin) for each in settings])
        return
    columns = [
        Column("name", tuple(each.name for each in settings), is_number=False),
        Column("value", tuple(_text(each) for each in settings), is_number=False),
    ]
    if has_origin:
        origins = tuple(each.origin for each in settings)
        columns.append(Column("origin", origins, is_number=False))
    print_table(columns)


def _described(setting: SettingView, *, has_origin: bool) -> dict[str, object]:
    described: dict[str, object] = {"name": setting.name, "value": setting.value}
    return {**described, "origin": setting.origin} if has_origin else described


def _text(setting: SettingView) -> str:
    value = setting.value
    if isinstance(value, list | tuple):
        return ", ".join(cast("Sequence[str]", value)) or "-"
    if isinstance(value, float):
        return _duration(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and setting.name.endswith("_size"):
        return amount(value)
    return str(value) if value != "" else "-"


def _duration(seconds: float) -> str:
    """A duration as people write it in a file: in the largest unit that leaves no fraction."""
    for unit, size in UNITS.items():
        if seconds and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"
