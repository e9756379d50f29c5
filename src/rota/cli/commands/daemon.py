"""`rota up`: start the daemon, here or in the background."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rota.cli.options import AsJson
from rota.cli.output.lines import complain, say
from rota.cli.up_flags import (
    Context,
    Detach,
    Engine,
    Kubeconfig,
    Listen,
    Namespace,
    PolicyName,
    VirtualGpus,
)
from rota.errors import RotaError, UnavailableError, UserError, shown

if TYPE_CHECKING:
    from rota.api.serve import Settings
    from rota.config.keys import Daemon
    from rota.config.load import Found
    from rota.core.view import Rules
    from rota.daemon.admission import Defaults

app = typer.Typer()

LOG_NAME = "daemon.log"
READY = b"ready"
PATIENCE_S = 10.0
KUBERNETES = "kubernetes"
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@app.command()
def up(
    *,
    is_detached: Detach = False,
    virtual_gpus: VirtualGpus = "",
    listen: Listen = "",
    engine: Engine = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: Namespace = "",
    policy: PolicyName = "",
    as_json: AsJson = False,
) -> None:
    """Start rota on this machine. It serves until 'rota down' or Ctrl-C.

    Files and variables may say the same as the flags, and more: see 'rota config show'.
    """
    from rota.config import make_state_dir
    from rota.observe import log_to_stderr

    if as_json and not is_detached:
        raise UserError("--json is for what --detach answers", "leave it out, or add --detach")
    log_to_stderr()
    folder = make_state_dir()
    flags = {
        "virtual_gpus": virtual_gpus,
        "listen": listen,
        "policy": policy,
        "engine": engine,
        "kubeconfig": kubeconfig,
        "kube_context": context,
        "namespace": namespace,
    }
    settings = settings_of(folder, flags)
    for warning in warnings_of(settings.listen, are_accounts=settings.are_accounts):
        complain(warning)
    if is_detached:
        pid = _detach(settings)
        _tell(pid, folder, as_json=as_json)
    else:
        _run(settings, lambda: complain(f"ready; state in {folder}, Ctrl-C ends it"))


def warnings_of(listen: tuple[str, int] | None, *, are_accounts: bool) -> list[str]:
    """What is allowed, and yet should be known by whoever asks for it."""
    found: list[str] = []
    if listen is not None and listen[0] not in LOOPBACK:
        found.append(
            f"listening on {listen[0]}, where other machines may reach it: nothing is encrypted,"
            " tokens included; 127.0.0.1 with 'ssh -L' or a TLS proxy is safer"
        )
    if listen is not None and not are_accounts:
        found.append(
            "tokens name people, but all their jobs run as you: that guards against accidents only"
        )
    return found


def settings_of(folder: Path, flags: dict[str, str]) -> Settings:
    """From flags, variables and files; whatever is wrong with them stops the start."""
    from rota.api.choosing import place_of
    from rota.api.serve import Settings
    from rota.config import store_file
    from rota.config.load import POLICY_NAME, Sources, blamed, daemon_settings
    from rota.daemon.membership import Care
    from rota.daemon.move_plans import Limits
    from rota.policies.registry import parse

    found = daemon_settings(Sources(folder, flags=flags))
    chosen = found.daemon()
    with blamed(found.get("policy")):
        parse(chosen.policy)
    with blamed(found.get("listen")):
        address = _address(chosen.listen) if chosen.listen else None
    defaults = cache(partial(_defaults, found))
    return Settings(
        folder=folder,
        store_file=store_file(),
        place=place_of(found, folder, listen=address, defaults=defaults),
        are_accounts=os.geteuid() == 0 or chosen.engine == KUBERNETES,
        policy=chosen.policy,
        policy_file=folder / POLICY_NAME,
        rules=_rules(chosen),
        defaults=defaults,
        admins=frozenset(chosen.admins),
        listen=address,
        keep_logs_s=chosen.keep_logs_s,
        care=Care(chosen.heartbeat_s, chosen.replace_stragglers),
        moving=Limits(
            tuple(each.removesuffix("/") for each in chosen.move_to), chosen.move_patience_s
        ),
    )


def _rules(chosen: Daemon) -> Rules:
    from rota.core.view import Rules

    return Rules(
        round_interval_s=chosen.round_interval_s,
        min_runtime_s=chosen.min_runtime_s,
        restart_cost_s=chosen.restart_cost_s,
        starvation_after_s=chosen.starvation_after_s,
        backoff_s=chosen.backoff_s,
    )


def _defaults(found: Found, project: str) -> Defaults:
    from rota.daemon.admission import Defaults
    from rota.engines.base import LogLimits

    daemon, job = found.daemon(), found.defaults(project)
    return Defaults(
        are_contained=daemon.engine == KUBERNETES,
        image=job.image,
        env=job.env,
        mounts=job.mounts,
        grace_s=daemon.grace_s,
        log=LogLimits(daemon.log_file_bytes, daemon.log_files),
    )


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    if not host or not port.isdigit() or not 0 < int(port) <= 65535:
        raise UserError(f"'{shown(text)}' is no address to listen on", "write 127.0.0.1:8800")
    return host, int(port)


def _run(settings: Settings, ready: Callable[[], object]) -> None:
    import asyncio

    import uvloop

    from rota.api.serve import serve
    from rota.daemon.lock import only_one
    from rota.observe import log_to_stderr

    log_to_stderr()
    with (
        only_one(settings.folder),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(settings, ready=ready))


def _tell(pid: int, folder: Path, *, as_json: bool) -> None:
    from rota.cli.output.json import say_json

    if as_json:
        say_json({"pid": pid, "folder": str(folder)})
    else:
        say(f"rota is up (process {pid}); state in {folder}")


def _detach(settings: Settings) -> int:
    """A child in a session of its own; it says through a pipe that it is ready, or why not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            if not select.select([pipe], [], [], PATIENCE_S)[0]:
                log = settings.folder / LOG_NAME
                complain(f"it is not ready yet; {log} says why, and it goes on after Ctrl-C")
            word = pipe.read()
        if word != READY:
            raise UnavailableError(
                word.decode(errors="replace") or "the daemon died before it was ready",
                f"see {settings.folder / LOG_NAME}",
            )
        return child
    os.close(reading)
    os.setsid()
    _become_background(settings.folder / LOG_NAME)
    code = 0
    try:
        _run(settings, partial(pass_on, writing, READY))
    except RotaError as error:
        complain(str(error))
        pass_on(writing, str(error).encode())
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - the parent waits for a word
        import traceback

        traceback.print_exc()
        pass_on(writing, f"{type(error).__name__}: {error}".encode())
        code = 1
    sys.stderr.flush()
    os._exit(code)


def pass_on(writing: int, words: bytes) -> None:
    """To who waits for it to be ready, if it was not yet. A standby may have to wait for days, and
    whoever started it went away; that is no reason for it to end."""
    with suppress(OSError):
        os.write(writing, words)
    with suppress(OSError):
        os.close(writing)


def _become_background(log: Path) -> None:
    from rota.observe import put_aside

    put_aside(log)
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    os.chdir("/")
