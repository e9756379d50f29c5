"""`rota up`, `status`, `top`, `down` and `doctor`: starts, shows, stops and checks the daemon."""

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
    from rota.api.listeners import TcpAddress
    from rota.cli.output.top import ClusterOverview
    from rota.client import Client
    from rota.server.settings import Settings
    from rota.wire.daemon import Status

PYTHON_GC_THRESHOLDS = (700, 10, 10)
"""Python's defaults: `rota.cli.main` sets others, for short commands."""
LOG_NAME = "daemon.log"
READY = b"ready"
READY_TIMEOUT_S = 10.0
POLL_S = 0.05
MAX_JOBS = 1000
STATES_WITH_GPUS = ("starting", "running", "stopping")
EXIT_TIMEOUT_S = 10.0
"""Limit for the exit of a daemon whose API is already closed."""


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
    flag("--plain-http", name="plain_http", text="Do not encrypt --listen: tokens can be stolen."),
    _setting("--tls-cert", metavar="FILE", text="Certificate of --listen (default: its own)."),
    _setting("--tls-key", metavar="FILE", text="Private key of --tls-cert."),
    _setting("--engine", metavar="ENGINE", text="Run jobs with 'local' or 'kubernetes'."),
    _setting("--kubeconfig", metavar="PATH", text="Kubeconfig (default: kubectl's)."),
    _setting("--context", name="kube_context", metavar="NAME", text="Context of the kubeconfig."),
    _setting("--namespace", metavar="NAME", text="Kubernetes namespace of the pods."),
    _setting("--policy", metavar="POLICY", text="Policy; see 'rota policy list'."),
    _setting(
        "--gpus-from", metavar="GPUS", text="Use only these GPUs: 0,2-3 or UUIDs (default: all)."
    ),
    flag("--reset-flags", name="resets_flags", text="Forget the flags of earlier starts."),
    JSON,
)
def up(
    *, is_detached: bool, resets_flags: bool, as_json: bool, plain_http: bool, **flags: str
) -> None:
    """Start the daemon on this machine. It runs until 'rota down' or Ctrl-C.

    The daemon remembers its flags: the next start uses them again, except those that it is given.
    Files and environment variables set the same options and more: see 'rota config show'.
    """
    if as_json and not is_detached:
        raise UserError("--json needs --detach", "leave out --json, or add --detach")
    given = flags | ({"plain_http": "true"} if plain_http else {})
    settings = _settings(given, resets_flags=resets_flags)
    for warning in listen_warnings(settings.listen, are_accounts=settings.are_accounts):
        print_err(warning)
    folder = settings.folder
    if is_detached:
        pid = _detach(settings)
        _print_started(pid, folder, as_json=as_json)
        _print_warnings(folder)
    else:
        _run(settings, lambda: print_err(f"ready; state in {folder}; Ctrl-C stops the daemon"))


def _settings(flags: dict[str, str], *, resets_flags: bool) -> Settings:
    from rota.config.paths import make_state_dir
    from rota.config.start_flags import flag_words, remembered_flags
    from rota.log_setup import log_to_stderr
    from rota.server.settings import settings_of

    log_to_stderr()
    folder = make_state_dir()
    remembered = {} if resets_flags else remembered_flags(folder)
    settings = settings_of(folder, flags, remembered=remembered)
    if reused := {name: text for name, text in remembered.items() if not flags.get(name)}:
        print_err(f"using flags of the last start: {flag_words(reused)} (--reset-flags forgets)")
    return settings


def listen_warnings(listen: TcpAddress | None, *, are_accounts: bool) -> list[str]:
    """The risks of listening on TCP that the administrator should know."""
    found: list[str] = []
    if listen is not None and listen.tls is None:
        found.append(
            f"connections to {listen.host} are not encrypted: tokens can be read on the way, and"
            " clients cannot tell this daemon from another program on its port"
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
        runner.run(serve(settings, ready=partial(_on_ready, settings, ready)))


def _on_ready(settings: Settings, ready: Callable[[], object]) -> None:
    """Remember the flags of a start that succeeded."""
    from rota.config.atomic_file import replace_file
    from rota.config.start_flags import remember_flags

    remember_flags(settings.folder, settings.flags)
    if settings.has_policy_flag:
        replace_file(settings.policy_file, settings.policy)
    ready()


def _print_started(pid: int, folder: Path, *, as_json: bool) -> None:
    from rota.cli.output.console import print_json

    if as_json:
        print_json({"pid": pid, "folder": str(folder)})
    else:
        print_out(f"rota is up (process {pid}); state in {folder}")


def _print_warnings(folder: Path) -> None:
    """What the started daemon found, such as missing GPUs."""
    from rota.client import Client
    from rota.config.paths import SOCKET_NAME

    with suppress(RotaError), Client(f"unix://{folder / SOCKET_NAME}") as rota:
        for each in rota.status().warnings:
            print_err(each)


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
    from rota.config.start_flags import flag_words

    for_s = span(time.time() - found.started_s)
    jobs = ", ".join(f"{count} {state}" for state, count in sorted(found.jobs.items()))
    free = max(found.gpus - found.gpus_held, 0)
    rows = [
        ("GPUs", f"{found.gpus_held:g} of {found.gpus} held, {free:g} free"),
        ("jobs", jobs or "none"),
        ("policy", found.policy),
        ("engine", found.engine),
        ("socket", found.socket),
        ("address", found.address),
        ("", found.address_problem),
        ("flags", flag_words(found.flags)),
        ("trouble", found.trouble),
        ("rounds", found.scheduling),
        *(("warning", each) for each in found.warnings),
        *(
            ("limit", f"{each.name}: you use {each.used:,} of {each.most:,}")
            for each in found.limits
            if 0 < each.most <= 2 * each.used
        ),
    ]
    print_out(f"rota {found.version} is up for {for_s} (process {found.pid})")
    print_out("\n".join(f"{name:<8} {value}" for name, value in rows if value))


@command("doctor", JSON)
def doctor(*, as_json: bool) -> int:
    """Check this machine and its daemon, and say what to do. Exit code 1 if a check fails.

    Checks settings, GPUs, NVML, MPS, control groups, containers, disk, permissions, ports, the
    clock and the daemon. A warning keeps exit code 0: rota works, but not all of it. A machine can
    be checked before its first 'rota up': no daemon is a warning.
    """
    from rota.cli.output.console import print_json
    from rota.server.doctor_checks import has_failed, result_lines, run_checks
    from rota.server.doctor_probe import read_all

    results = run_checks(read_all())
    is_failed = has_failed(results)
    if as_json:
        print_json({"ok": not is_failed, "checks": [asdict(each) for each in results]})
    else:
        print_out("\n".join(result_lines(results)))
    return 1 if is_failed else 0


@command(
    "top",
    flag("--once", name="is_once", text="Print once and exit (default if stdout is a pipe)."),
    JSON,
)
def top(*, is_once: bool, as_json: bool) -> None:
    """Watch nodes, their GPUs and the jobs on them. The key q ends the view."""
    from rota.cli.output.console import print_json
    from rota.cli.output.live import live
    from rota.cli.output.top import as_dict, draw
    from rota.client import Client

    with Client() as rota:
        if as_json:
            print_json(as_dict(_overview(rota)))
        elif is_once or not sys.stdout.isatty():
            print_out("\n".join(draw(_overview(rota), now=time.time())))
        else:
            live(lambda: draw(_overview(rota), now=time.time()))


def _overview(rota: Client) -> ClusterOverview:
    from rota.cli.output.top import ClusterOverview

    jobs = rota.jobs(states=STATES_WITH_GPUS, limit=MAX_JOBS).jobs
    return ClusterOverview(rota.status(), rota.nodes(), jobs)


COMMANDS = (up, status, down, doctor, top)
