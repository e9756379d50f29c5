"""A daemon in a process of its own, on a state folder of its own, and all that it runs.

Jobs are shell scripts that speak through a file: `say WORD` appends a line to it, and
`await NAME` waits until the test has said `allow(NAME)`.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import httpx2

from rota.client import Client
from rota.client.http import AnswerError
from rota.engines.local import cgroup_discovery
from rota.engines.local.orphans import kill_orphans
from rota.engines.local.supervisor import proc
from rota.engines.local.supervisor.records import WorkerKey
from rota.engines.local.worker_dirs import WorkerDirs
from rota.wire.jobs import FINAL_STATES, JobRequest, JobView, StoryEntry
from tests.support.timeouts import PATIENCE_S
from tests.tidy.tree import ROOT

LOOK_AGAIN_S = 0.02
BACKOFF = "0.2s"
"""Before the first retry."""
ROTA = (sys.executable, "-m", "rota.cli.main")
PRELUDE = """
say() { echo "$ROTA_JOB $ROTA_ATTEMPT $*" >> "$HERE/journal"; }
await() { until [ -e "$HERE/$1" ]; do sleep 0.02; done; }
"""

NO_SETTINGS: Mapping[str, str] = {}

T = TypeVar("T")


class JournalLine(NamedTuple):
    """What a job said."""

    job_id: str
    attempt: int
    words: str


class DaemonProcess:
    def __init__(
        self,
        home: Path,
        *,
        gpus: str = "4x16GiB",
        runner: Sequence[str] = (),
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> None:
        """`runner` goes before the daemon's command, to run it somewhere else. `settings` are
        variables."""
        self.home = home
        self.place = home / "jobs"
        self.state = home / "rota"
        for folder in (self.place, self.state):
            folder.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self.door = f"unix://{self.state}/rota.sock"
        self.client = Client(self.door, takes_context=False)
        virtual = ["--virtual-gpus", gpus] if gpus else []
        self._command = [*runner, *ROTA, "up", *virtual]
        self._entry: list[str] = []
        """How another program gets to see what the daemon sees."""
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ROTA_")},
            "ROTA_HOME": str(self.state),
            "ROTA_BACKOFF": BACKOFF,
            **settings,
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'trainer/src'}",
        }

    # -- the daemon -----------------------------------------------------------------------------

    def launch(self, *flags: str) -> None:
        """Without waiting for it to be ready."""
        with (self.home / "log").open("ab") as log:
            command = [*self._command, *flags]
            self.process = subprocess.Popen(command, stderr=log, env=self._env, cwd=ROOT)

    def enter_mount_namespace(self) -> None:
        """At its files: it may have mounted something where we see nothing."""
        assert self.process is not None
        self.state = Path(f"/proc/{self.process.pid}/root{self.home}/rota")
        self._entry = ["nsenter", "--target", str(self.process.pid), "--mount"]
        if os.geteuid() != 0:
            self._entry += ["--user", "--preserve-credentials"]
        self.client.close()
        self.client = Client(f"unix://{self.state}/rota.sock", takes_context=False)

    def up(self, *flags: str) -> None:
        self.launch(*flags)
        self.ready()

    def ready(self) -> None:
        wait_until(self._is_ready, "the daemon to be ready")

    def kill(self) -> None:
        """kill -9: no word of farewell."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def down(self, *flags: str) -> None:
        done = self.rota("down", *flags)
        assert (done.returncode, done.stderr) == (0, "")
        # At once, because the user may start the next daemon.
        assert self.process is not None
        assert self.process.wait(0) == 0

    def has_ended(self) -> bool:
        """Wait until the daemon ends by itself."""
        assert self.process is not None
        return self.process.wait(PATIENCE_S) == 0

    def tell(self, **variables: str) -> None:
        """Set variables of the commands and daemons that start from now on."""
        self._env |= variables

    def rota(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the command line."""
        command = self.command(*arguments)
        return subprocess.run(**command, capture_output=True, text=True, check=False)

    def command(self, *arguments: str) -> dict[str, Any]:
        """The arguments of `subprocess.Popen` for a command that runs in the background."""
        command = [*self._entry, *ROTA, *arguments]
        return {"args": command, "env": self._env, "cwd": ROOT}

    def log(self) -> str:
        return (self.home / "log").read_text(errors="replace")

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the daemon ended: {self.log()[-2000:]}"
        return self.answers() and not self.client.status().trouble

    def readiness(self) -> int:
        """The status code of the readiness check."""
        transport = httpx2.HTTPTransport(uds=self.client.endpoint.socket)
        with httpx2.Client(transport=transport) as client:
            return client.get("http://rota/readyz").status_code

    def answers(self) -> bool:
        """Whether a process listens on the socket. The client is not used, because it would not
        close a socket without a listener."""
        with socket.socket(socket.AF_UNIX) as door:
            return door.connect_ex(self.client.endpoint.socket) == 0

    # -- jobs -----------------------------------------------------------------------------------

    def request(self, script: str, **fields: Any) -> JobRequest:
        env = {"HERE": str(self.place), **fields.pop("env", {})}
        command = ["/bin/sh", "-c", PRELUDE + script]
        return JobRequest(command, env=env, **{"name": "job", "workdir": str(self.place), **fields})

    def submit(self, script: str, **fields: Any) -> str:
        return self.client.submit(self.request(script, **fields))

    def allow(self, name: str) -> None:
        (self.place / name).touch()

    def heard(self, job: str = "") -> list[JournalLine]:
        """All that was said, or all that one job said."""
        try:
            text = (self.place / "journal").read_text()
        except FileNotFoundError:
            return []
        split = [line.split(" ", maxsplit=2) for line in text.splitlines()]
        lines = [JournalLine(job_id, int(attempt), words) for job_id, attempt, words in split]
        return [line for line in lines if job in ("", line.job_id)]

    def says(self, job: str, words: str, *, attempt: int = 1) -> None:
        wanted = JournalLine(job, attempt, words)
        what = f"{wanted}; heard: {self.heard(job)}"
        wait_until(lambda: wanted in self.heard(), what)

    def says_like(self, job: str, beginning: str, *, attempt: int = 1) -> JournalLine:
        def line() -> JournalLine | None:
            fitting = (line for line in self.heard(job) if line.words.startswith(beginning))
            return next((line for line in fitting if line.attempt == attempt), None)

        return wait_until(line, f"job {job} to say {beginning!r}")

    def reaches(self, job: str, state: str, *, attempt: int = 0) -> None:
        """It may have left the state again by now."""

        def has_reached() -> bool:
            story = self.client.story(job)
            return any(each.after == state and each.attempt >= attempt for each in story)

        wait_until(has_reached, f"job {job} to be {state}")

    def starts(self, job: str) -> list[StoryEntry]:
        return [each for each in self.client.story(job) if each.before != each.after == "starting"]

    def state_of(self, job: str) -> str:
        return self.client.show(job).job.state

    def ends(self, job: str) -> JobView:
        def ended() -> JobView | None:
            view = self.client.show(job).job
            return view if view.state in FINAL_STATES else None

        return wait_until(ended, f"job {job} to end")

    def output(self, job: str, **query: Any) -> bytes:
        return b"".join(self.client.log_bytes(job, **query))

    @property
    def folders(self) -> WorkerDirs:
        return WorkerDirs(self.state / "engine")

    def keeper(self, job: str, *, attempt: int = 1) -> int:
        found = self.folders.supervisor(WorkerKey(job, attempt, 0))
        assert found is not None
        return found.pid

    def processes(self, job: str, *, attempt: int = 1, worker: int = 0) -> proc.ProcessTable:
        spec = self.folders.spec(WorkerKey(job, attempt, worker))
        return {} if spec is None else proc.with_marker(spec.marker)

    # -- the end --------------------------------------------------------------------------------

    def clear(self) -> None:
        """End all jobs."""
        for job in self.client.jobs(states=["held", "queued", "starting", "running"]).jobs:
            # Unless it ends just now.
            with suppress(AnswerError):
                self.client.cancel(job.id)
        wait_until(lambda: not self.client.status().jobs, "all jobs to end")
        for path in self.place.iterdir():
            path.unlink() if path.is_file() else shutil.rmtree(path)

    def destroy(self) -> None:
        """End the daemon, then whatever still runs, then the folder."""
        if self.process is not None and self.process.poll() is None:
            self.kill()
        self.client.close()
        with suppress(FileNotFoundError):
            for fence in self.folders.live():
                self._end(fence)
            name = cgroup_discovery.name_for(self.state / "engine")
            cgroup_discovery.remove(cgroup_discovery.find(name))
        while found := self.left():
            for pid, start_ticks in found.items():
                proc.send(pid, start_ticks, number=signal.SIGKILL)
        shutil.rmtree(self.home)

    def left(self) -> proc.ProcessTable:
        """Running processes of jobs, of any supervisor."""
        return proc.with_variable(f"HERE={self.place}")

    def _end(self, fence: WorkerKey) -> None:
        keeper = self.folders.supervisor(fence)
        if keeper is not None:
            proc.send(keeper.pid, keeper.start_ticks, number=signal.SIGKILL)
        spec = self.folders.spec(fence)
        if spec is not None:
            kill_orphans(spec)


@contextmanager
def temporary_daemon(**options: Any) -> Generator[DaemonProcess]:
    """The daemon is not up yet. The path is short, because a socket's may not be long."""
    home = Path(tempfile.mkdtemp(prefix="rota-"))
    daemon = DaemonProcess(home, **options)
    try:
        yield daemon
    finally:
        daemon.destroy()


def wait_until(condition: Callable[[], T | None], what: str) -> T:
    """What the condition gives, as soon as that is something."""
    give_up_at = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < give_up_at, f"waited {PATIENCE_S:g} s for {what}"
        time.sleep(LOOK_AGAIN_S)
    return found


def wait_for_end(pid: int) -> None:
    """Until this process is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    with os.fdopen(pidfd):
        assert select.select([pidfd], [], [], PATIENCE_S)[0], f"process {pid} goes on"
