"""Moves of jobs between daemons: by command, automatic, and through crashes."""

from __future__ import annotations

import json
import signal
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rota.client import Client
from rota.client.http import AnswerError
from rota.client.migration import hand_over, move
from rota.wire.jobs import JobRequest
from rota.wire.moves import JobTransfer, MoveRequest, move_key
from tests.support.daemon_process import DaemonProcess, temporary_daemon, wait_until
from tests.support.ports import reserve_port

USER = "nobody"
"""A daemon of root runs no job of a token as root."""
PATIENCE = {"ROTA_MOVE_PATIENCE": "1s"}
LONG = "say start; await done"


class Town:
    """Two daemons with one GPU each, and a user with contexts for both."""

    def __init__(self, box: DaemonProcess, lab: DaemonProcess, *, config: Path) -> None:
        self.box, self.lab = box, lab
        port = reserve_port()
        for daemon in (box, lab):
            # The jobs of both daemons write to one folder.
            daemon.home.chmod(0o711)
            daemon.place.chmod(0o777)
        lab.place = box.place
        box.up()
        lab.up("--listen", f"127.0.0.1:{port}")
        self.url = lab.client.status().address
        self.secret = lab.client.create_token(user=USER).secret
        secret = box.client.create_token(user=USER).secret
        self.here = Client(box.door, token=secret, takes_context=False)
        self.there = Client(self.url, token=self.secret, takes_context=False)
        box.tell(ROTA_TOKEN=self.here.token)
        self._know(config)

    def _know(self, config: Path) -> None:
        config.mkdir(mode=0o700)
        known = {"lab": {"url": self.url, "token": self.secret}}
        (config / "contexts.json").write_text(json.dumps({"current": "", "contexts": known}))
        (config / "contexts.json").chmod(0o600)

    def rota(self, *words: str) -> Any:
        """A client with the token of a user of the box."""
        return self.box.rota(*words)

    def close(self) -> None:
        self.here.close()
        self.there.close()

    def busy(self) -> str:
        """Fill the box with a job."""
        job = self.here.submit(self.box.request("say busy; await over", name="busy"))
        self.box.says(job, "busy")
        return job

    def plan(self, *jobs: str, after: str = "0", **other: str) -> None:
        plan = MoveRequest(list(jobs), to="lab", url=self.url, token=self.secret, after=after)
        self.here.move_later(replace(plan, **other))

    def moved_as(self, job: str) -> str:
        """The id of a job at the lab, after it has ended here."""
        ended = self.box.ends(job)
        assert ended.state == "cancelled", ended.reason
        assert ended.reason.startswith("moved to lab as ")
        return ended.reason.removeprefix("moved to lab as ")

    def secrets(self) -> list[Path]:
        return list((self.box.state / "moves").glob("*"))

    def stays(self, job: str) -> str:
        """The reason in the history with which the job was released again."""

        def released() -> str:
            story = self.here.story(job)
            return next((each.reason for each in story if "not moved" in each.reason), "")

        return wait_until(released, f"job {job} to stay")


@contextmanager
def a_town(tmp_path: Path) -> Generator[Town]:
    settings = {**PATIENCE, "XDG_CONFIG_HOME": str(tmp_path)}
    with (
        temporary_daemon(gpus="1x16GiB", settings=settings) as box,
        temporary_daemon(gpus="1x16GiB") as lab,
    ):
        town = Town(box, lab, config=tmp_path / "rota")
        try:
            yield town
        finally:
            town.close()


@pytest.fixture
def town(tmp_path: Path) -> Generator[Town]:
    with a_town(tmp_path) as town:
        yield town


def starts(client: Client, job: str) -> int:
    return sum(each.after == "starting" for each in client.story(job))


def test_a_job_moves_with_its_code_and_runs_once(town: Town, tmp_path: Path) -> None:
    town.busy()
    code = tmp_path / "code"
    code.mkdir()
    (code / "main.sh").write_text('echo "$ROTA_JOB $ROTA_ATTEMPT shipped" >> "$HERE/journal"\n')
    (code / "same.sh").write_text((code / "main.sh").read_text())
    request = JobRequest(["sh", "main.sh"], env={"HERE": str(town.box.place)}, name="mine")
    job = town.here.submit(
        JobRequest(request.command, env=request.env, name="mine", snapshot=town.here.ship(code))
    )
    done = town.rota("resubmit", job, "--to", "lab")
    assert (done.returncode, done.stderr) == (0, "")
    there = done.stdout.strip()
    assert town.moved_as(job) == there
    town.lab.says(there, "shipped")
    assert town.lab.ends(there).state == "succeeded"
    assert town.there.show(there).job.name == "mine"
    assert [line.words for line in town.box.heard() if line.words != "busy"] == ["shipped"]
    first = town.there.story(there)[0]
    assert first.reason.startswith(f"moved here from job {job} at ")
    assert starts(town.here, job) == 0


def test_job_that_waits_for_another_is_not_moved(town: Town) -> None:
    first = town.busy()
    for field in ("after", "after_any", "after_failed"):
        job = town.here.submit(JobRequest(["true"], **{field: [first]}))  # type: ignore[arg-type]
        done = town.rota("resubmit", job, "--to", "lab")
        assert (done.returncode, done.stdout) == (2, "")
        assert f"depends on job {first}" in done.stderr
        assert town.here.show(job).job.state == "queued"
    assert town.there.jobs().jobs == []


def test_repeated_move_creates_one_job(town: Town) -> None:
    town.busy()
    job = town.here.submit(town.box.request("say once"))
    found = town.here.show(job)
    # The first try reached the hand-over, and its response was lost.
    key = move_key(job, found.job.submitted_s)
    first = hand_over(town.there, JobTransfer(found.request, key, "somewhere"))
    assert town.there.show(first).job.state == "held"
    assert move(town.here, town.there, job=job, to="lab") == first
    assert town.lab.ends(first).state == "succeeded"
    # Repeat the move after its end.
    assert move(town.here, town.there, job=job, to="lab") == first
    assert [line.job_id for line in town.box.heard() if line.words == "once"] == [first]


def test_running_job_stops_before_it_starts_elsewhere(town: Town) -> None:
    script = "trap 'sleep 0.3; say gone; exit 0' TERM; say here; while :; do sleep 0.05; done"
    job = town.here.submit(town.box.request(script))
    town.box.says(job, "here")
    there = move(town.here, town.there, job=job, to="lab")
    town.lab.says(there, "here")
    assert [line[::2] for line in town.box.heard()] == [
        (job, "here"),
        (job, "gone"),
        (there, "here"),
    ]


def test_job_that_the_target_rejects_stays(town: Town) -> None:
    busy = town.busy()
    job = town.here.submit(town.box.request("say start", cpus=0.001))
    town.lab.client.drain(town.lab.client.nodes()[0].id)
    with pytest.raises(AnswerError, match="snapshot"):
        hand_over(town.there, JobTransfer(JobRequest(["true"], snapshot="0" * 64), "k", "x"))
    with Client(town.url, token="rota_wrong") as stranger, pytest.raises(AnswerError):
        move(town.here, stranger, job=job, to="lab")
    assert town.here.show(job).job.state == "queued"
    assert "unknown, expired or revoked token" in town.stays(job)
    town.box.allow("over")
    town.box.says(job, "start")
    assert town.box.ends(busy).state == "succeeded"


def test_queued_job_moves_after_the_given_time(town: Town) -> None:
    town.busy()
    words = ["--name", "mine", "--workdir", "/", "--env", f"HERE={town.box.place}"]
    script = 'echo "$ROTA_JOB $ROTA_ATTEMPT alone" >> "$HERE/journal"'
    done = town.rota(
        "submit", "--move-after", "1s", "--to", "lab", *words, "--", "sh", "-c", script
    )
    assert (done.returncode, done.stderr) == (0, "")
    job = done.stdout.strip()
    there = town.moved_as(job)
    town.lab.says(there, "alone")
    assert town.lab.ends(there).state == "succeeded"
    assert starts(town.here, job) == 0
    wait_until(lambda: not town.secrets(), "the token to be gone")
    seen = [*town.here.story(job), town.here.show(job), town.box.log(), town.lab.log()]
    assert town.secret not in str(seen)


def test_planned_move_is_private_and_shown_without_its_token(town: Town) -> None:
    town.busy()
    job = town.here.submit(town.box.request("say start"))
    town.plan(job, after="1h")
    [file] = town.secrets()
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    reason = town.here.show(job).job.reason
    assert reason.endswith("; moves to lab in 60 min unless it starts before")
    shown = town.rota("show", job, "--json").stdout + town.rota("report", job, "-o", "-").stdout
    assert town.secret not in shown


def test_job_that_starts_in_time_stays_and_its_token_is_deleted(town: Town) -> None:
    busy = town.busy()
    job = town.here.submit(town.box.request("say start"))
    other = town.here.submit(town.box.request("say start", name="other"))
    town.plan(job, other, after="1h")
    assert len(town.secrets()) == 2
    town.here.cancel(other)
    town.here.cancel(busy)
    town.box.says(job, "start")
    wait_until(lambda: not town.secrets(), "the tokens to be gone")
    assert town.there.jobs().jobs == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"url": "https://127.0.0.1:1"}, "cannot reach lab: no daemon at https://127"),
        ({"token": "rota_wrong"}, "lab refused the job: unknown, expired or revoked token"),
    ],
)
def test_job_that_cannot_be_moved_stays(town: Town, other: dict[str, str], words: str) -> None:
    town.busy()
    job = town.here.submit(town.box.request("say start"))
    town.plan(job, **other)
    assert words in town.stays(job)
    wait_until(lambda: not town.secrets(), "the token to be gone")
    town.box.allow("over")
    town.box.says(job, "start")


def test_restarted_daemon_completes_a_move(town: Town) -> None:
    town.busy()
    job = town.here.submit(town.box.request("say moved"))
    assert town.lab.process is not None
    town.lab.process.send_signal(signal.SIGSTOP)
    town.plan(job)
    town.box.reaches(job, "held")
    town.box.kill()
    town.lab.process.send_signal(signal.SIGCONT)
    town.box.up()
    there = town.moved_as(job)
    town.lab.says(there, "moved")
    assert town.lab.ends(there).state == "succeeded"
    assert [line.job_id for line in town.box.heard() if line.words == "moved"] == [there]
    assert [each.id for each in town.there.jobs().jobs] == [there]
    wait_until(lambda: not town.secrets(), "the token to be gone")


def test_release_by_the_owner_cancels_the_move(town: Town) -> None:
    town.busy()
    job = town.here.submit(town.box.request(LONG))
    assert town.lab.process is not None
    town.lab.process.send_signal(signal.SIGSTOP)
    town.plan(job)
    town.box.reaches(job, "held")
    town.here.release(job)
    town.lab.process.send_signal(signal.SIGCONT)
    wait_until(lambda: not town.secrets(), "the move to be over")
    assert town.here.show(job).job.state == "queued"
    assert {each.state for each in town.there.jobs().jobs} <= {"cancelled"}


def test_invalid_move_is_rejected_before_the_submit(town: Town) -> None:
    def refused(*words: str) -> str:
        done = town.rota("submit", *words, "--workdir", "/", "--", "true")
        assert (done.returncode, done.stdout) == (2, "")
        return done.stderr

    assert "--move-after and --to need each other" in refused("--to", "lab")
    assert "'local' is a socket" in refused("--move-after", "1m", "--to", "local")
    assert "unknown context 'lob'; did you mean 'lab'?" in refused(
        "--move-after", "1m", "--to", "lob"
    )
    assert "after: " in refused("--move-after", "soon", "--to", "lab")
    assert town.here.jobs().jobs == []
