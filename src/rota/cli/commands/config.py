"""`rota config`: shows the settings in effect and the origin of each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.command import command, flag
from rota.cli.options import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.config.load import Setting

HELP = "Show the settings in effect."


@command(
    "show",
    flag("--origin", name="has_origin", text="Also show the file or variable of each setting."),
    JSON,
)
def show(*, has_origin: bool, as_json: bool) -> None:
    """Show every setting, with --origin also its source.

    These settings apply to a daemon started on this machine and to a submit from this folder. A
    running daemon keeps the settings that it was started with.
    """
    from rota.cli.output.settings import print_settings

    print_settings(list(_settings()), has_origin=has_origin, as_json=as_json)


def _settings() -> Iterator[Setting]:
    from rota.client.endpoint import chosen, find
    from rota.config.load import DEFAULT, Setting, Sources, daemon_settings, submit_settings
    from rota.config.paths import state_dir

    def origin(variable: str) -> str:
        return variable if os.environ.get(variable) else DEFAULT

    yield Setting(("home",), str(state_dir()), origin("ROTA_HOME"))
    yield Setting(("url",), str(find()), chosen().origin)
    yield from daemon_settings(Sources(state_dir()))
    for each in submit_settings(Sources(Path.cwd())):
        yield Setting(("submit", *each.place), each.value, each.origin)


COMMANDS = (show,)
