"""Runs scripts in processes with torch already loaded: loading takes longer than the tests.

A separate process loads the modules once and forks a worker for each script. A worker is a real
process with its own pipes, environment and exit code, and can be killed.
"""

import atexit
import contextlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "src"), str(ROOT / "trainer" / "src")])

LONGEST_S = 120


@dataclass(frozen=True)
class Child:
    """A worker process: its input, its output and its exit code."""

    pid: int
    stdin: IO[bytes]
    stdout: IO[bytes]
    status: IO[bytes]

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        code = int(self.status.readline())
        for pipe in (self.stdin, self.stdout, self.status):
            pipe.close()
        return code


class TorchForkServer:
    def __init__(self, *modules: str) -> None:
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(there.fileno()), *modules],
            pass_fds=[there.fileno()],
            env={**os.environ, "PYTHONPATH": PYTHONPATH},
        )
        there.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _: TracebackType | None,
    ) -> None:
        self._here.close()
        self._process.wait(timeout=PATIENCE_S)

    def run(self, argv: Sequence[str], env: Mapping[str, str], *, cwd: Path = ROOT) -> Child:
        (stdin, our_in), (our_out, stdout), (our_status, status) = (os.pipe() for _ in range(3))
        request = json.dumps({"argv": list(argv), "env": dict(env), "cwd": str(cwd)}).encode()
        socket.send_fds(self._here, [request], [stdin, stdout, status])
        for theirs in (stdin, stdout, status):
            os.close(theirs)
        said = os.fdopen(our_status, "rb")
        pid = int(said.readline())
        return Child(pid, os.fdopen(our_in, "wb", 0), os.fdopen(our_out, "rb"), said)


def main() -> None:
    door = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        __import__(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        request, pipes, _, _ = socket.recv_fds(door, 1 << 20, 3)
        if not request:
            # Skip the clean-up of the interpreter, which takes seconds with torch.
            os._exit(0)
        if os.fork() == 0:
            door.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            supervise_worker(json.loads(request), pipes)
        for pipe in pipes:
            os.close(pipe)


def supervise_worker(request: Any, pipes: list[int]) -> None:
    """Start the worker, wait for it, kill its remaining processes, and report its exit code."""
    stdin, stdout, status = pipes
    worker = os.fork()
    if worker == 0:
        os.setpgid(0, 0)
        os.close(status)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.close(stdin)
        os.close(stdout)
        os.chdir(request["cwd"])
        os.environ.update(request["env"])
        os._exit(run_worker_script(request["argv"]))
    os.close(stdin)
    os.close(stdout)
    os.write(status, f"{worker}\n".encode())
    code = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    # A data loader process may wait forever for a lock that the worker held.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(worker, signal.SIGKILL)
    os.write(status, f"{code}\n".encode())
    os._exit(0)


def run_worker_script(argv: list[str]) -> int:
    """Run the script like `python argv...`, with a time limit."""
    signal.alarm(LONGEST_S)
    sys.argv = argv
    code: object = 0
    try:
        runpy.run_path(argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001 - whatever it is, it ends the script
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    return code if isinstance(code, int) else 1


if __name__ == "__main__":
    main()
