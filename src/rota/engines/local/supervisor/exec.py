"""From a fresh fork of the keeper to the worker's own program.

Nothing here returns: either the program runs, or the keeper is told in words why it does not.
"""

from __future__ import annotations

import errno
import fcntl
import os
import resource
import signal
import termios
from typing import NamedTuple, NoReturn

from rota.engines.local import cgroups
from rota.engines.local.order import Order

CANNOT_RUN = 126
NOT_FOUND = 127
CHANGED_SIGNALS = (
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ),
)
"""Those that the keeper, or Python itself, hears or ignores."""


class SetupError(Exception):
    """The worker cannot run as asked; whose mistake it is stands in the words."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class Stdio(NamedTuple):
    """What becomes file 0, 1 and 2 of the program. A terminal becomes its own."""

    input_fd: int
    output_fd: int
    error_fd: int
    is_terminal: bool = False

    @classmethod
    def of_output(cls, output_fd: int) -> Stdio:
        """With nothing to read."""
        return cls(os.open(os.devnull, os.O_RDONLY), output_fd, output_fd)


def become_worker(order: Order, *, stdio: Stdio, complaint_fd: int) -> NoReturn:
    """`complaint_fd` closes by itself when the program runs; before that, it takes the reason."""
    try:
        _detach(stdio)
        cgroups.join(order)
        _limit(order)
        _give_up_protection()
        _take_identity(order)
        _enter_workdir(order)
        _run(order)
    except SetupError as error:
        _complain(complaint_fd, error.code, reason=str(error))
    except OSError as error:
        _complain(complaint_fd, CANNOT_RUN, reason=f"the worker could not be set up: {error}")
    finally:
        os._exit(CANNOT_RUN)


def _complain(fd: int, code: int, *, reason: str) -> NoReturn:
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


def _limit(order: Order) -> None:
    """Where there is no control group: RLIMIT_DATA, which counts what a process could write to,
    not RLIMIT_AS, which also counts the address space that CUDA reserves (often more than the
    machine's memory) without using it. It holds for each process, not for the tree. RLIMIT_NPROC
    counts all processes and threads of the worker's user on the machine, those of other jobs and
    logins included, against the limit of the one that forks; root is not held to it."""
    if order.memory_bytes and "memory" not in order.cgroups:
        _set_limit(resource.RLIMIT_DATA, order.memory_bytes)
    if order.pids_max and "pids" not in order.cgroups:
        _set_limit(resource.RLIMIT_NPROC, order.pids_max)
    _set_limit(resource.RLIMIT_CORE, 0)


def _set_limit(which: int, value: int) -> None:
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(which, (value, value))


def _give_up_protection() -> None:
    """A daemon may be spared when the machine runs out of memory; whoever uses it up is not."""
    fd = os.open("/proc/self/oom_score_adj", os.O_RDWR | os.O_CLOEXEC)
    try:
        if os.read(fd, 16).startswith(b"-"):
            os.pwrite(fd, b"0", 0)
    finally:
        os.close(fd)


def _take_identity(order: Order) -> None:
    if order.uid is not None and (order.uid, order.gid) != (os.getuid(), os.getgid()):
        gid = order.gid if order.gid is not None else order.uid
        try:
            os.setgroups(order.groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(order.uid, order.uid, order.uid)
        except PermissionError as error:
            reason = f"may not run as user {order.uid}: the daemon runs as user {os.getuid()}"
            raise SetupError(CANNOT_RUN, reason) from error
    os.umask(order.umask)


def _enter_workdir(order: Order) -> None:
    """With the worker's own rights, so that nobody gets into a folder through the daemon."""
    try:
        os.chdir(order.workdir)
    except OSError as error:
        what = f"working folder {order.workdir!r} cannot be entered by user {os.getuid()}"
        raise SetupError(CANNOT_RUN, f"{what}: {_words(error)}") from error


def _run(order: Order) -> NoReturn:
    name = order.argv[0]
    if "/" in name:
        candidates = [name]
    else:
        folders = order.env.get("PATH", os.defpath).split(":")
        candidates = [f"{folder or '.'}/{name}" for folder in folders]
    refusal: OSError | None = None
    for path in candidates:
        try:
            os.execve(path, order.argv, order.env)
        except (FileNotFoundError, NotADirectoryError) as error:
            if os.path.lexists(path):
                refusal = refusal or error
        except OSError as error:
            refusal = refusal or error
    raise _refused(name, refusal, path=order.env.get("PATH", os.defpath))


def _refused(name: str, refusal: OSError | None, *, path: str) -> SetupError:
    if refusal is None:
        where = "" if "/" in name else f" in PATH ({path})"
        return SetupError(NOT_FOUND, f"program {name!r} was not found{where}")
    if refusal.errno == errno.ENOENT:
        return SetupError(NOT_FOUND, f"program {name!r} needs an interpreter that does not exist")
    if refusal.errno == errno.ENOEXEC:
        what = "is neither a binary for this machine nor a script with a #! line"
        return SetupError(CANNOT_RUN, f"program {name!r} {what}")
    if refusal.errno == errno.EACCES:
        return SetupError(CANNOT_RUN, f"program {name!r} may not be executed: permission denied")
    return SetupError(CANNOT_RUN, f"program {name!r} cannot be executed: {_words(refusal)}")


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
