"""`rota up`, `rota status` and `rota down`: starts, describes and stops the daemon."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rota.cli.options import AsJson
from rota.cli.output.console import print_err, print_out
from rota.errors import RotaError, UnavailableError, UserError

if TYPE_CHECKING:
    from rota.client import Client
    from rota.server.settings import Settings
    from rota.wire.daemon import Status

app = typer.Typer()

LOG_NAME = "daemon.log"
READY = b"ready"
READY_TIMEOUT_S = 10.0
POLL_S = 0.05
EXIT_TIMEOUT_S = 10.0
"""Limit for the exit of a daemon whose API is already closed."""
LOOPBACK = ("127.0.0.1", "::1", "localhost")

Detach = Annotated[
    bool, typer.Option("--detach", "-d", help="Run in the background; return when it is ready.")
]
VirtualGpus = Annotated[
    str,
    typer.Option(
        "--virtual-gpus", metavar="NxMEMORY", help="Simulate GPUs: 4x16GiB is four of 16 GiB."
    ),
]
Listen = Annotated[
    str,
    typer.Option("--listen", metavar="HOST:PORT", help="Also listen on TCP; clients need a token."),
]
Engine = Annotated[
    str, typer.Option("--engine", metavar="ENGINE", help="Run jobs with 'local' or 'kubernetes'.")
]
Kubeconfig = Annotated[
    str, typer.Option("--kubeconfig", metavar="PATH", help="Kubeconfig (default: kubectl's).")
]
KubeContext = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
Namespace = Annotated[
    str, typer.Option("--namespace", metavar="NAME", help="Kubernetes namespace of the pods.")
]
PolicyName = Annotated[
    str, typer.Option("--policy", metavar="POLICY", help="Policy; see 'rota policy list'.")
]


@app.command()
def up(
    *,
    is_detached: Detach = False,
    virtual_gpus: VirtualGpus = "",
    listen: Listen = "",
    engine: Engine = "",
    kubeconfig: Kubeconfig = "",
    context: KubeContext = "",
    namespace: Namespace = "",
    policy: PolicyName = "",
    as_json: AsJson = False,
) -> None:
    """Start the daemon on this machine. It runs until 'rota down' or Ctrl-C.

    Files and environment variables set the same options and more: see 'rota config show'.
    """
    if as_json and not is_detached:
        raise UserError("--json needs --detach", "leave out --json, or add --detach")
    flags = {
        "virtual_gpus": virtual_gpus,
        "listen": listen,
        "policy": policy,
        "engine": engine,
        "kubeconfig": kubeconfig,
        "kube_context": context,
        "namespace": namespace,
    }
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


@app.command()
def status(*, as_json: AsJson = False) -> None:
    """Show the state of the daemon. Exit code 1 if no daemon runs."""
    from rota.cli.output.console import print_json
    from rota.client import Client

    with Client() as rota:
        found = rota.status()
    if as_json:
        print_json(asdict(found))
    else:
        _print_status(found)


@app.command()
def down(
    *,
    keeps_jobs: Annotated[
        bool,
        typer.Option("--keep-jobs/--stop-jobs", help="Keep jobs running, or requeue them."),
    ] = True,
    as_json: AsJson = False,
) -> None:
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
