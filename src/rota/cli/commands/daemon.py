"""`rota up`, `rota status` and `rota down`: starts, describes and stops the daemon."""

from __future__ import annotations

import gc
import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rota.cli.command import CommandOption, command, flag
from rota.cli.options import JSON
from rota.cli.output.console import print_err, print_out
from rota.errors import RotaError, UnavailableError, UserError

if TYPE_CHECKING:
    from rota.client import Client
    from rota.server.settings import Settings
    from rota.wire.daemon import Status

PYTHON_GC_THRESHOLDS = (700, 10, 10)
"""Python's defaults: `rota.cli.main` sets others, for short commands."""
LOG_NAME = "daemon.log"
READY = b"ready"
READY_TIMEOUT_S = 10.0
POLL_S = 0.05
EXIT_TIMEOUT_S = 10.0
"""Limit for the exit of a daemon whose API is already closed."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _setting(flag: str, *, metavar: str, text: str, name: str = "") -> CommandOption:
    """An option of `rota up` that is a setting of the daemon."""
    name = name or flag.removeprefix("--").replace("-", "_")
    return CommandOption(flag, name=name, metavar=metavar, text=text, parse=str, default="")


@command(
    "up",
    flag("--detach", "-d", name="is_detached", text="Run in the background; return when ready."),
    _setting(
        "--virtual-gpus", metavar="NxMEMORY", text="Simulate GPUs: 4x16GiB is four of 16 GiB."
    ),
    _setting("--listen", metavar="HOST:PORT", text="Also listen on TCP; clients need a token."),
    _setting("--engine", metavar="ENGINE", text="Run jobs with 'local' or 'kubernetes'."),
    _setting("--kubeconfig", metavar="PATH", text="Kubeconfig (default: kubectl's)."),
    _setting("--context", name="kube_context", metavar="NAME", text="Context of the kubeconfig."),
    _setting("--namespace", metavar="NAME", text="Kubernetes namespace of the pods."),
    _setting("--policy", metavar="POLICY", text="Policy; see 'rota policy list'."),
    JSON,
)
def up(*, is_detached: bool, as_json: bool, **flags: str) -> None:
    """Start the daemon on this machine. It runs until 'rota down' or Ctrl-C.

    Files and environment variables set the same options and more: see 'rota config show'.
    """
    if as_json and not is_detached:
        raise UserError("--json needs --detach", "leave out --json, or add --detach")
    settings = _settings(flags)
    for warning in listen_warnings(settings.listen, are_accounts=settings.are_accounts):
        print_err(warning)
    folder = settings.folder
    if is_detached:
        pid = _detach(settings)
        _print_started(pid, folder, as_json=as_json)
    else:
        _run(settings, lambda: print_err(f"ready; state in {folder}; Ctrl-C stops the daemon"))


def _settings(flags: dict[str, str]) -> Settings:
    from rota.config.paths import make_state_dir
    from rota.log_setup import log_to_stderr
    from rota.server.settings import settings_of

    log_to_stderr()
    return settings_of(make_state_dir(), flags)


def listen_warnings(listen: tuple[str, int] | None, *, are_accounts: bool) -> list[str]:
    """The risks of listening on TCP that the administrator should know."""
    found: list[str] = []
    if listen is not None and listen[0] not in LOOPBACK:
        found.append(
            f"other machines can reach {listen[0]}, and the connection is not encrypted, tokens"
            " included; 127.0.0.1 with 'ssh -L' or a TLS proxy is safer"
        )
    if listen is not None and not are_accounts:
        found.append(
            "the jobs of all token users run as you: tokens protect against mistakes only,"
            " not against malicious users"
        )
    return found


def _run(settings: Settings, ready: Callable[[], object]) -> None:
    import asyncio

    import uvloop

    from rota.daemon.runtime.process_lock import hold_process_lock
    from rota.log_setup import log_to_stderr
    from rota.server.main import serve

    log_to_stderr()
    gc.set_threshold(*PYTHON_GC_THRESHOLDS)
    with (
        hold_process_lock(settings.folder),
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(serve(settings, ready=ready))


def _print_started(pid: int, folder: Path, *, as_json: bool) -> None:
    from rota.cli.output.console import print_json

    if as_json:
        print_json({"pid": pid, "folder": str(folder)})
    else:
        print_out(f"rota is up (process {pid}); state in {folder}")


def _detach(settings: Settings) -> int:
    """Fork the daemon into its own session and wait until it is ready. Return its process id.

    The child writes `READY` or its error into a pipe.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            if not select.select([pipe], [], [], READY_TIMEOUT_S)[0]:
                log = settings.folder / LOG_NAME
                print_err(f"the daemon is not ready yet, see {log}; it keeps starting after Ctrl-C")
            message = pipe.read()
        if message != READY:
            raise UnavailableError(
                message.decode(errors="replace") or "the daemon exited before it was ready",
                f"see {settings.folder / LOG_NAME}",
            )
        return child
    os.close(reading)
    os.setsid()
    _become_background(settings.folder / LOG_NAME)
    code = 0
    try:
        _run(settings, partial(notify_parent, writing, READY))
    except RotaError as error:
        print_err(str(error))
        notify_parent(writing, str(error).encode())
        code = error.exit_code
    except BaseException as error:  # noqa: BLE001 - the parent waits for a message
        import traceback

        traceback.print_exc()
        notify_parent(writing, f"{type(error).__name__}: {error}".encode())
        code = 1
    sys.stderr.flush()
    os._exit(code)


def notify_parent(writing: int, message: bytes) -> None:
    """Send a message to the parent process, which waits until the daemon is ready.

    A standby may wait for days before it is ready. If the parent has exited by then, the standby
    continues without it.
    """
    with suppress(OSError):
        os.write(writing, message)
    with suppress(OSError):
        os.close(writing)


def _become_background(log: Path) -> None:
    """Replace stdin by /dev/null and stdout and stderr by the log file."""
    from rota.log_setup import rotate_log

    rotate_log(log)
    null = os.open(os.devnull, os.O_RDWR)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    os.chdir("/")


@command("status", JSON)
def status(*, as_json: bool) -> None:
    """Show the state of the daemon. Exit code 1 if no daemon runs."""
    from rota.cli.output.console import print_json
    from rota.client import Client

    with Client() as rota:
        found = rota.status()
    if as_json:
        print_json(asdict(found))
    else:
        _print_status(found)


@command(
    "down",
    CommandOption(
        "--keep-jobs", name="keeps_jobs", text="Keep jobs running (default).", default=True
    ),
    CommandOption(
        "--stop-jobs",
        name="keeps_jobs",
        text="Return the jobs to the queue first.",
        const=False,
        default=True,
    ),
    JSON,
)
def down(*, keeps_jobs: bool, as_json: bool) -> None:
    """Stop the daemon. Its jobs keep running, and the next daemon adopts them. With --stop-jobs
    the jobs return to the queue first."""
    from rota.cli.output.console import print_json
    from rota.client import Client

    with Client() as rota:
        pid = rota.status().pid
        rota.stop(stop_jobs=not keeps_jobs)
        _wait_for_api_close(rota, pid)
        if rota.endpoint.socket:
            _wait_for_exit(pid)
    if as_json:
        print_json({"pid": pid})
    else:
        print_out(f"rota is down (process {pid})")


def _wait_for_api_close(rota: Client, pid: int) -> None:
    """Wait until the daemon answers no more, or another one does: systemd may restart it."""
    from rota.client.endpoint import NoDaemonError
    from rota.errors import UnavailableError

    while True:
        try:
            if rota.status().pid != pid:
                return
        except NoDaemonError:
            return
        except UnavailableError:
            # The daemon closed the connection during the request.
            pass
        time.sleep(POLL_S)


def _wait_for_exit(pid: int) -> None:
    """Wait until the process has exited and so released the state folder for the next daemon."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    with os.fdopen(pidfd):
        select.select([pidfd], [], [], EXIT_TIMEOUT_S)


def _print_status(found: Status) -> None:
    from rota.cli.output.format import span

    jobs = ", ".join(f"{count} {state}" for state, count in sorted(found.jobs.items()))
    rows = [
        ("process", f"{found.pid}, for {span(time.time() - found.started_s)}"),
        ("version", found.version),
        ("engine", found.engine),
        ("socket", found.socket),
        ("address", found.address),
        ("policy", found.policy),
        ("GPUs", f"{found.gpus_held:g} of {found.gpus} held"),
        ("jobs", jobs or "none"),
        ("trouble", found.trouble),
        ("rounds", found.scheduling),
    ]
    print_out("\n".join(f"{name:<8} {value}" for name, value in rows if value))


COMMANDS = (up, status, down)
