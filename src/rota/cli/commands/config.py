"""`rota config`: shows the settings in effect and the origin of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.command import command, flag
from rota.cli.options import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rota.config.load import Setting
    from rota.wire.daemon import SettingView

HELP = "Show the settings in effect."


@command(
    "show",
    flag("--client", name="is_client", text="Show the settings of submits from this folder."),
    flag("--origin", name="has_origin", text="Also show the file or variable of each setting."),
    JSON,
)
def show(*, is_client: bool, has_origin: bool, as_json: bool) -> None:
    """Show the settings of the daemon, with --client those of submits.

    A running daemon keeps the settings that it was started with. If no daemon runs, the command
    shows the settings that 'rota up' would use. Only administrators see the values of variables
    for jobs.
    """
    from rota.cli.output.settings import print_settings

    settings = [each.view() for each in _client_settings()] if is_client else _daemon_settings()
    print_settings(settings, has_origin=has_origin, as_json=as_json)


def _client_settings() -> Iterator[Setting]:
    from rota.client.endpoint import chosen, find
    from rota.config.load import Setting, Sources, home_setting, submit_settings
    from rota.config.paths import state_dir

    yield home_setting(state_dir())
    yield Setting(("url",), str(find()), chosen().origin)
    for each in submit_settings(Sources(Path.cwd())):
        yield Setting(("submit", *each.place), each.value, each.origin)


def _daemon_settings() -> list[SettingView]:
    from rota.cli.output.console import print_err
    from rota.client import Client
    from rota.client.endpoint import NoDaemonError
    from rota.config.paths import state_dir

    with Client() as rota:
        try:
            return rota.settings()
        except NoDaemonError as error:
            # The next start of another daemon is not known here.
            if not rota.endpoint.socket or Path(rota.endpoint.socket).parent != state_dir():
                raise
            print_err(f"{error.message}: these settings apply to the next 'rota up'")
    return _settings_of_next_start(state_dir())


def _settings_of_next_start(folder: Path) -> list[SettingView]:
    from rota.config.load import Sources, daemon_settings, home_setting
    from rota.config.start_flags import remembered_flags

    found = daemon_settings(Sources(folder, remembered=remembered_flags(folder)))
    return [each.view() for each in (home_setting(folder), *found)]


COMMANDS = (show,)
