"""Programs that train with `rota_trainer`, under a real daemon: they report, stop on request, and
resume from their checkpoint."""

import sys
from contextlib import closing
from typing import Any

from rota.core.model.job import JobId
from rota.store.sqlite.store import SqliteStore
from rota.wire.jobs import JobRequest, JobView
from tests.support.daemon_process import DaemonProcess, wait_until
from tests.tidy.tree import ROOT

ALL = "4"
"""The number of GPUs of the daemon."""
PROGRAM = """
import json, os, pathlib, signal, sys, time
import rota_trainer as trainer

here = pathlib.Path(os.environ["HERE"])
epochs = []

def say(*words):
    with (here / "journal").open("a") as journal:
        print(os.environ["ROTA_JOB"], os.environ["ROTA_ATTEMPT"], *words, file=journal)

def leave(*_):
    say("term")
    sys.exit(1)

def load(path):
    epochs.extend(json.loads(path.read_text()))

if "--deaf" in sys.argv:
    signal.signal(signal.SIGTERM, leave)
run = trainer.start()
restored = run.restore(load)
say("start", os.environ["EPOCHS_DONE"], os.environ["ROTA_RESTARTS"], len(epochs), restored)
for epoch in run.epochs(6, save=lambda path: path.write_text(json.dumps(epochs))):
    say("epoch", epoch)
    while not (here / f"go-{epoch}").exists():
        if run.should_stop and "--deaf" not in sys.argv:
            break
        time.sleep(0.01)
    epochs.append(epoch)
    run.report(loss=1 / (1 + epoch))
    run.step(samples=32)
say("end", *epochs)
"""


def train(daemon: DaemonProcess, *flags: str, **fields: Any) -> str:
    script = daemon.place / "train.py"
    script.write_text(PROGRAM)
    request = JobRequest(
        [sys.executable, str(script), *flags],
        env={"HERE": str(daemon.place), "PYTHONPATH": str(ROOT / "trainer" / "src")},
        workdir=str(daemon.place),
        **{"name": "train", **fields},
    )
    return daemon.client.submit(request)


def said(daemon: DaemonProcess, job: str) -> list[tuple[int, str]]:
    return [(line.attempt, line.words) for line in daemon.heard(job)]


def reports(daemon: DaemonProcess, job: str, epochs: float) -> JobView:
    def view() -> JobView | None:
        found = daemon.client.show(job).job
        return found if found.epochs_done == epochs else None

    return wait_until(view, f"a report of {epochs} epochs; {daemon.output(job)!r}")


def test_job_reports_its_progress(daemon: DaemonProcess) -> None:
    job = train(daemon)
    daemon.says(job, "epoch 0")
    for epoch in range(6):
        reports(daemon, job, epoch)
        daemon.allow(f"go-{epoch}")
    ended = daemon.ends(job)
    assert (ended.state, ended.epochs_done, ended.epochs) == ("succeeded", 6, 6)
    assert daemon.output(job) == b""
    with closing(SqliteStore(daemon.state / "rota.db")) as store:
        samples = store.samples(JobId(job))
    assert samples, "none was kept"
    assert [each.epochs_done for each in samples] == sorted(each.epochs_done for each in samples)
    assert {each.workers for each in samples} == {1}
    assert samples[-1].metrics["loss"] <= 1
    assert samples[-1].memory_bytes > 0


def test_preemption_waits_for_the_safe_point(daemon: DaemonProcess) -> None:
    low = train(daemon, gpus=ALL)
    daemon.allow("go-0")
    daemon.says(low, "epoch 1")
    reports(daemon, low, 1)
    high = daemon.submit("say start; await high", gpus=ALL, priority=5)
    daemon.says(high, "start")
    (stop,) = [each for each in daemon.client.story(low) if each.before == "stopping"]
    assert "lost" not in stop.reason
    for epoch in range(2, 6):
        daemon.allow(f"go-{epoch}")
    daemon.allow("high")
    assert daemon.ends(low).state == "succeeded"
    assert said(daemon, low) == [
        (1, "start 0 0 0 False"),
        (1, "epoch 0"),
        (1, "epoch 1"),
        (2, "start 2 1 2 True"),
        *((2, f"epoch {epoch}") for epoch in range(2, 6)),
        (2, "end 0 1 2 3 4 5"),
    ]
    first, second = daemon.client.show(low).attempts
    assert [worker.exit_code for worker in first.workers + second.workers] == [75, 0]


def test_job_gets_sigterm_after_the_grace_period(daemon: DaemonProcess) -> None:
    job = train(daemon, "--deaf", gpus=ALL, grace="1s")
    daemon.allow("go-0")
    reports(daemon, job, 1)
    daemon.client.hold(job)
    daemon.says(job, "term")
    daemon.reaches(job, "held")
    assert daemon.client.show(job).job.epochs_done == 1


def test_training_continues_while_the_daemon_is_killed(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    daemon.up()
    job = train(daemon)
    daemon.allow("go-0")
    reports(daemon, job, 1)
    daemon.kill()
    daemon.allow("go-1")
    daemon.says(job, "epoch 2")
    daemon.up()
    reports(daemon, job, 2)
    for epoch in range(2, 6):
        daemon.allow(f"go-{epoch}")
    assert daemon.ends(job).state == "succeeded"
    assert said(daemon, job)[-1] == (1, "end 0 1 2 3 4 5")
    assert len(daemon.starts(job)) == 1


def test_stop_request_is_repeated_after_a_crash_of_the_daemon(own_daemon: DaemonProcess) -> None:
    daemon = own_daemon
    daemon.up()
    job = train(daemon, "--deaf", grace="1h")
    daemon.allow("go-0")
    reports(daemon, job, 1)
    daemon.says(job, "epoch 1")
    daemon.client.hold(job)
    daemon.kill()
    daemon.up()
    assert daemon.state_of(job) == "stopping"
    wait_until(
        lambda: b"the daemon is reachable again" in daemon.output(job), "the worker to come back"
    )
    for epoch in range(1, 6):
        daemon.allow(f"go-{epoch}")
    daemon.reaches(job, "held")
    (stop,) = [each for each in daemon.client.story(job) if each.before == "stopping"]
    assert "lost" not in stop.reason
    daemon.client.release(job)
    n_done = int(daemon.says_like(job, "start", attempt=2).words.split()[1])
    # The job stopped at its safe point, the end of an epoch with a checkpoint, and not later.
    assert n_done >= 2
    assert (2, f"start {n_done} 1 {n_done} True") in said(daemon, job)
