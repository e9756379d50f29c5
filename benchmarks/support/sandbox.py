"""Runs daemons in a temporary folder and stops all their processes at the end."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep


def wait_until(is_so: Callable[[], bool], *, what: str, every_s: float, within_s: float) -> None:
    deadline = monotonic() + within_s
    while not is_so():
        if monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {within_s:.0f} s")
        sleep(every_s)


MARK = "BENCHMARK_STAGE"
PEERS_VARIABLE = "ROTA_PEERS"
STOP_S = 5.0
START_S = 30.0
LOOK_AGAIN_S = 0.02


class Sandbox:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {**os.environ, MARK: str(folder), "PATH": search_path()}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def run(self, *argv: str | Path) -> str:
        """Run a command and return its output. A failure raises an error with its stderr."""
        done = subprocess.run(
            argv, env=self.environment, cwd=self.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{argv[0]} ended with {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def daemon(self, *argv: str | Path, is_ready: Callable[[], bool]) -> subprocess.Popen[bytes]:
        """Start a daemon in the foreground. Its output goes to a file of the sandbox."""
        log = self.folder / f"{Path(argv[0]).name}.out"
        with log.open("ab") as output:
            daemon = subprocess.Popen(
                argv,
                env=self.environment,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # Ctrl-C goes to the benchmark only, which stops its daemons itself.
                start_new_session=True,
            )
        self._daemons.append(daemon)

        def is_up() -> bool:
            if daemon.poll() is not None:
                tail = log.read_text(errors="replace")[-500:]
                raise RuntimeError(f"{argv[0]} ended with {daemon.returncode} at start: {tail}")
            return is_ready()

        wait_until(is_up, what=f"start of {argv[0]}", every_s=0.02, within_s=START_S)
        return daemon

    def kill(self, daemon: subprocess.Popen[bytes]) -> None:
        daemon.kill()
        daemon.wait()
        self._daemons.remove(daemon)

    def pids(self) -> list[int]:
        """All running processes of this sandbox, by process id."""
        mark = f"{MARK}={self.folder}".encode()
        return sorted(pid for pid in _all_pids() if mark in _environment_of(pid))

    def close(self) -> None:
        while self._daemons:
            _end(self._daemons.pop())
        # Twice, because a process shows no marker while it executes another program.
        for _ in range(2):
            while found := self.pids():
                for pid in found:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                time.sleep(LOOK_AGAIN_S)
            time.sleep(LOOK_AGAIN_S)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def sandbox(name: str) -> Iterator[Sandbox]:
    made = Sandbox(Path(tempfile.mkdtemp(prefix=f"one-box-{name}-")))
    atexit.register(made.close)
    try:
        yield made
    finally:
        made.close()
        atexit.unregister(made.close)


def search_path(environment: Mapping[str, str] = os.environ) -> str:
    """The search path: the folder of packages from PyPI, PATH, then folders of daemons."""
    own = environment.get(PEERS_VARIABLE)
    first = [str(Path(own).resolve() / "bin")] if own else []
    return os.pathsep.join([*first, environment.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def has_commands(names: Sequence[str]) -> bool:
    return all(shutil.which(name, path=search_path()) for name in names)


def first_line(*argv: str) -> str:
    """The first line that a command prints, such as its version."""
    environment = {**os.environ, "PATH": search_path()}
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip().splitlines()[0]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def answers_at(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _end(daemon: subprocess.Popen[bytes]) -> None:
    daemon.terminate()
    try:
        daemon.wait(STOP_S)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _all_pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _environment_of(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # The process has ended, or belongs to another user.
        return []
