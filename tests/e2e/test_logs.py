"""Following logs while jobs are queued, run, fail, restart and end."""

import subprocess
import threading

from rota.client import Client
from rota.wire.jobs import LogRange
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.support.processes import started
from tests.support.timeouts import PATIENCE_S


class Follower(threading.Thread):
    """Follows the output of a job to its end, in a thread."""

    def __init__(self, daemon: DaemonProcess, job: str) -> None:
        super().__init__(daemon=True)
        self.output = b""
        self.error: BaseException | None = None
        self._door = daemon.door
        self._job = job
        self.start()

    def run(self) -> None:
        try:
            with Client(self._door) as client:
                for chunk in client.log_bytes(self._job, LogRange(follow=True)):
                    self.output += chunk
        except BaseException as error:
            self.error = error
            raise

    def reads(self, word: bytes) -> None:
        wait_until(lambda: word in self.output, f"{word!r}; so far: {self.output!r}")

    def all(self) -> bytes:
        self.join(PATIENCE_S)
        assert not self.is_alive(), "the follower still reads"
        assert self.error is None
        return self.output


def test_follower_of_a_queued_job_reads_all_output(daemon: DaemonProcess) -> None:
    """Repeated, because the result could depend on timing."""
    for _ in range(10):
        job = daemon.submit("echo first; await go; echo second", hold=True)
        follower = Follower(daemon, job)
        daemon.client.release(job)
        follower.reads(b"first\n")
        daemon.allow("go")
        assert follower.all() == b"first\nsecond\n"
        (daemon.place / "go").unlink()


def test_follower_reads_the_next_attempt(daemon: DaemonProcess) -> None:
    job = daemon.submit('echo "attempt $ROTA_ATTEMPT"; await "go-$ROTA_ATTEMPT"; echo end')
    follower = Follower(daemon, job)
    follower.reads(b"attempt 1\n")
    daemon.client.hold(job)
    daemon.reaches(job, "held")
    daemon.client.release(job)
    follower.reads(b"attempt 2\n")
    daemon.allow("go-2")
    assert follower.all() == b"attempt 1\nattempt 2\nend\n"


def test_follower_ends_when_a_held_job_is_cancelled(daemon: DaemonProcess) -> None:
    job = daemon.submit("echo never", hold=True)
    follower = Follower(daemon, job)
    daemon.client.cancel(job)
    assert follower.all() == b""


def test_logs_follow_survives_a_killed_daemon(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    daemon.up()
    job = daemon.submit("echo first; await go; echo second")
    daemon.reaches(job, "running")
    command = daemon.command("logs", "--follow", job)
    with started(**command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"first\n"
        daemon.kill()
        daemon.up()
        daemon.allow("go")
        assert reader.wait(PATIENCE_S) == 0
        assert reader.stdout.read() == b"second\n"
        assert reader.stderr is not None
        assert reader.stderr.read() == b""
    assert daemon.ends(job).state == "succeeded"
    assert daemon.output(job) == b"first\nsecond\n"


def test_output_during_a_restart_of_the_daemon_is_read_once(own_daemon: DaemonProcess) -> None:
    """Includes bytes that are no text, and a daemon that stops on request."""
    daemon = own_daemon
    daemon.up()
    script = r"printf 'a\377\n'; await one; printf 'b\376'; say done; await two; printf 'c\n'"
    job = daemon.submit(script)
    follower = Follower(daemon, job)
    follower.reads(b"a\xff\n")
    daemon.client.stop()
    assert daemon.process is not None
    daemon.process.wait(PATIENCE_S)
    daemon.allow("one")
    daemon.says(job, "done")
    daemon.up()
    follower.reads(b"b\xfe")
    daemon.kill()
    daemon.up()
    daemon.allow("two")
    assert follower.all() == b"a\xff\nb\xfec\n"


def test_output_of_a_job_that_has_not_started(daemon: DaemonProcess) -> None:
    """A line on stderr says why there is none."""
    job = daemon.submit("true", hold=True)
    done = daemon.rota("logs", job)
    assert (done.returncode, done.stdout) == (0, "")
    assert (
        done.stderr == f"rota: job {job} is held: held until a user releases it; it has no output\n"
    )
