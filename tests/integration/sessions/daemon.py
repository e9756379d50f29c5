"""A daemon process, its jobs, and the command line."""

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rota.client import Client, JobRequest
from rota.engines.local.supervisor import proc
from tests.support.timeouts import PATIENCE_S

SOURCE = Path(__file__).parents[3] / "src"
ROTA = (sys.executable, "-m", "rota.cli.main")
FOREVER = "echo ready; while :; do sleep 0.05; done"
STUBBORN = "trap '' HUP TERM; echo here; (setsid sh -c 'while :; do sleep 0.05; done' &); "
STUBBORN += "while :; do sleep 0.05; done"


class Daemon:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.env = {**os.environ, "ROTA_HOME": str(home), "PYTHONPATH": str(SOURCE)}
        self.env.pop("ROTA_URL", None)
        self.env.pop("ROTA_TOKEN", None)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"unix://{self.home}/rota.sock"

    def start(self) -> None:
        self.process = subprocess.Popen(
            [*ROTA, "up", "--virtual-gpus", "4x16GiB"],
            env=self.env,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if b"ready; state in" in line:
                return
        raise AssertionError("the daemon died before it was ready")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self._reap()

    def stop(self) -> None:
        with Client(self.url) as rota:
            rota.stop(stop_jobs=True)
        self._reap()

    def _reap(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        self.process.wait(PATIENCE_S)
        self.process.stderr.close()

    def client(self, token: str = "") -> Client:
        return Client(self.url, token=token)

    def run(self, rota: Client, script: str = FOREVER, **request: object) -> str:
        """Start a job, wait until it runs, and return its id."""
        command = ["/bin/sh", "-c", script]
        job_id = rota.submit(JobRequest(command=command, gpus="1", **request))  # type: ignore[arg-type]
        until(lambda: rota.show(job_id).job.state == "running")
        return job_id

    def cli(self, *words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(  # type: ignore[call-overload]
            [*ROTA, *words],
            env=self.env,
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            **{"stdin": subprocess.DEVNULL, **options},
        )

    def cli_in_background(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*ROTA, *words],
            env=self.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


@contextmanager
def running() -> Iterator[Daemon]:
    # Not pytest's directory: other users cannot enter it, and its path may be too long.
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    home.chmod(0o711)
    daemon = Daemon(home)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.stop()
        shutil.rmtree(home)


def processes(job_id: str) -> proc.ProcessTable:
    """All processes of a job's first worker, by marker."""
    return proc.with_variable(f"ROTA_JOB={job_id}")


def until(is_it: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_S
    while not is_it():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


class OnTerminal:
    """The command line on a pseudo-terminal."""

    def __init__(self, daemon: Daemon, *words: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(sys.executable, [*ROTA, *words], daemon.env)
        self.seen = b""

    def says(self, word: bytes) -> bytes:
        """Wait for this text; return all output since the last call."""
        give_up_at = time.monotonic() + PATIENCE_S
        while word not in self.seen:
            assert time.monotonic() < give_up_at, self.seen
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 4096)
        end = self.seen.index(word) + len(word)
        found, self.seen = self.seen[:end], self.seen[end:]
        return found

    def types(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def exit_code(self) -> int:
        """Wait for the exit code, reading output like a terminal."""
        give_up_at = time.monotonic() + PATIENCE_S
        while time.monotonic() < give_up_at:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    self.seen += os.read(self.fd, 4096)
                except OSError:
                    time.sleep(0.05)
        raise AssertionError("it goes on")
