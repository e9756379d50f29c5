"""Estimated finish times of the API, compared with the real ones of the jobs."""

import sys
import time
from dataclasses import dataclass

from rota.wire.jobs import JobRequest, JobView
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.tidy.tree import ROOT

EPOCHS = 24
EPOCH_S = 0.4
SLOW_S = 1.2
TOLERANCE = 0.1
"""Relative to the remaining time."""
PROGRAM = """
import os, sys, time
import rota_trainer as trainer

epochs, slow_from = int(sys.argv[1]), int(sys.argv[2])
quick_s, slow_s = float(sys.argv[3]), float(sys.argv[4])
journal = open(os.environ["HERE"] + "/journal", "a", buffering=1)
run = trainer.start()
due_s = time.time()
for epoch in run.epochs(epochs):
    for _ in run.steps(range(4)):
        # Sleep until a point in time: a busy machine does not prolong the epoch.
        due_s += (quick_s if epoch < slow_from else slow_s) / 4
        time.sleep(max(0.0, due_s - time.time()))
    print(os.environ["ROTA_JOB"], 1, "epoch", epoch + 1, time.time(), file=journal)
"""


@dataclass(frozen=True)
class Seen:
    """A view of the job, and the time of the request."""

    at_s: float
    job: JobView


def train(daemon: DaemonProcess, *, slow_from: int, slow_s: float) -> str:
    script = daemon.place / "steady.py"
    script.write_text(PROGRAM)
    sizes = [str(each) for each in (EPOCHS, slow_from, EPOCH_S, slow_s)]
    request = JobRequest(
        [sys.executable, str(script), *sizes],
        name="steady",
        gpus="1",
        env={"HERE": str(daemon.place), "PYTHONPATH": str(ROOT / "trainer" / "src")},
        workdir=str(daemon.place),
    )
    return daemon.client.submit(request)


def seen_at(daemon: DaemonProcess, job: str, epochs: int) -> Seen:
    """The first view in which this many epochs are done."""

    def look() -> Seen | None:
        at_s, found = time.time(), daemon.client.show(job).job
        return Seen(at_s, found) if found.epochs_done >= epochs else None

    return wait_until(look, f"{epochs} epochs of {job}: {daemon.output(job)!r}")


def end_of(daemon: DaemonProcess, job: str) -> float:
    """The end of the last epoch, as the job printed it."""
    assert daemon.ends(job).state == "succeeded", daemon.output(job)
    *_, last = daemon.heard(job)
    word, number, at_s = last.words.split()
    assert (word, number) == ("epoch", str(EPOCHS))
    return float(at_s)


def is_right(seen: Seen, ended_s: float) -> bool:
    assert seen.job.finish_s is not None
    allowed_s = TOLERANCE * (ended_s - seen.at_s)
    return abs(seen.job.finish_s - ended_s) <= allowed_s


def test_finish_time_of_a_steady_job_is_accurate_at_half_of_it(daemon: DaemonProcess) -> None:
    job = train(daemon, slow_from=EPOCHS, slow_s=EPOCH_S)
    seen = seen_at(daemon, job, EPOCHS // 2)
    ended_s = end_of(daemon, job)
    assert is_right(seen, ended_s), (seen, ended_s)


def test_finish_time_is_accurate_three_epochs_after_a_slow_down(daemon: DaemonProcess) -> None:
    half = EPOCHS // 2
    job = train(daemon, slow_from=half, slow_s=SLOW_S)
    before = seen_at(daemon, job, half - 2)
    after = seen_at(daemon, job, half + 3)
    ended_s = end_of(daemon, job)
    assert not is_right(before, ended_s), "it could not know of what comes"
    assert is_right(after, ended_s), (after, ended_s)
