"""Turn a fresh fork of the supervisor into the worker's program: setup, then execve.

`exec_worker` never returns: either the program runs, or the supervisor receives the reason why not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
from typing import NamedTuple, NoReturn

from rota.engines.local.supervisor import cgroups
from rota.engines.local.supervisor.records import WorkerSpec

CANNOT_RUN = 126
NOT_FOUND = 127
CHANGED_SIGNALS = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
)
"""Signals that the supervisor or Python handles or ignores; the program gets the defaults."""


class SetupError(Exception):
    """The worker cannot run as specified. The message names the cause."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Stdio(NamedTuple):
    """File descriptors 0, 1 and 2 of the program. A terminal becomes its controlling terminal."""

    input_fd: int
    output_fd: int
    error_fd: int
    is_terminal: bool = False

    @classmethod
    def of_output(cls, output_fd: int) -> Stdio:
        """Empty input; output and errors go to `output_fd`."""
        return cls(os.open(os.devnull, os.O_RDONLY), output_fd, output_fd)


def exec_worker(spec: WorkerSpec, *, stdio: Stdio, status_fd: int) -> NoReturn:
    """Run the program. On failure, write the code and the reason to `status_fd`; on success, execve
    closes `status_fd` (it is close-on-exec)."""
    try:
        _detach(stdio)
        cgroups.join(spec)
        _limit(spec)
        _reset_oom_score()
        _drop_privileges(spec)
        _enter_workdir(spec)
        _run(spec)
    except SetupError as error:
        _report_setup_error(status_fd, error.code, reason=str(error))
    except OSError as error:
        _report_setup_error(status_fd, CANNOT_RUN, reason=f"cannot set up the worker: {error}")
    finally:
        os._exit(CANNOT_RUN)


def _report_setup_error(fd: int, code: int, *, reason: str) -> NoReturn:
    os.write(fd, f"{code} {reason}".encode()[:2048])
    os._exit(code)


def _detach(stdio: Stdio) -> None:
    os.setsid()
    for number, fd in enumerate(stdio[:3]):
        os.dup2(fd, number)
    if stdio.is_terminal:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in CHANGED_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _limit(spec: WorkerSpec) -> None:
    """Set resource limits where there is no control group.

    RLIMIT_DATA limits writable memory, per process and not for the whole tree. RLIMIT_AS is no
    alternative: it also counts the address space that CUDA reserves without using it, often more
    than the machine's memory. RLIMIT_NPROC counts all processes and threads of the user on the
    machine, those of other jobs and logins included; it does not apply to root.
    """
    if spec.memory_bytes and "memory" not in spec.cgroups:
        _set_limit(resource.RLIMIT_DATA, spec.memory_bytes)
    if spec.pids_max and "pids" not in spec.cgroups:
        _set_limit(resource.RLIMIT_NPROC, spec.pids_max)
    _set_limit(resource.RLIMIT_CORE, 0)


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _reset_oom_score() -> None:
    """Undo a protection from the OOM killer that the daemon may have: it is not for workers."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.read(fd, 16).startswith(b"-"):
            os.pwrite(fd, b"0", 0)
    finally:
        os.close(fd)


def _drop_privileges(spec: WorkerSpec) -> None:
    if spec.uid is not None and (spec.uid, spec.gid) != (os.getuid(), os.getgid()):
        gid = spec.gid if spec.gid is not None else spec.uid
        try:
            os.setgroups(spec.groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(spec.uid, spec.uid, spec.uid)
        except PermissionError as error:
            reason = f"cannot run as user {spec.uid}: the daemon runs as user {os.getuid()}"
            raise SetupError(CANNOT_RUN, reason) from error
    os.umask(spec.umask)


def _enter_workdir(spec: WorkerSpec) -> None:
    """Change to the working directory, with the worker's own rights: the daemon's rights must not
    give access to a directory."""
    try:
        os.chdir(spec.workdir)
    except OSError as error:
        what = f"user {os.getuid()} cannot enter working directory {spec.workdir!r}"
        raise SetupError(CANNOT_RUN, f"{what}: {_message(error)}") from error


def _run(spec: WorkerSpec) -> NoReturn:
    name = spec.argv[0]
    if "/" in name:
        candidates = [name]
    else:
        folders = spec.env.get("PATH", os.defpath).split(":")
        candidates = [f"{folder or '.'}/{name}" for folder in folders]
    refusal: OSError | None = None
    for path in candidates:
        try:
            os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # Much cheaper than an execve, which first converts all variables.
        except OSError as error:
            refusal = refusal or error
            continue
        try:
            os.execve(path, spec.argv, spec.env)
        except OSError as error:
            refusal = refusal or error
    raise _refused(name, refusal, path=spec.env.get("PATH", os.defpath))


def _refused(name: str, refusal: OSError | None, *, path: str) -> SetupError:
    if refusal is None:
        where = "" if "/" in name else f" in PATH ({path})"
        return SetupError(NOT_FOUND, f"program {name!r} not found{where}")
    if refusal.errno == errno.ENOENT:
        return SetupError(NOT_FOUND, f"program {name!r} needs an interpreter that does not exist")
    if refusal.errno == errno.ENOEXEC:
        what = "is neither a binary for this machine nor a script with a #! line"
        return SetupError(CANNOT_RUN, f"program {name!r} {what}")
    if refusal.errno == errno.EACCES:
        return SetupError(CANNOT_RUN, f"program {name!r} is not executable: permission denied")
    return SetupError(CANNOT_RUN, f"program {name!r} cannot be executed: {_message(refusal)}")


def _message(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
