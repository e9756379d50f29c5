"""What counts as a preemption, a resize and a move."""

from __future__ import annotations

from concurrent.futures import Future

from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.simulator.recorder import Recorder
from rota.simulator.workload import Scaling, TraceJob, Workload
from rota.store.interface import Batch
from tests.support.builders import Lab, cluster, job

NODES = cluster("1x4")


def watched(lab: Lab, *names: str) -> Recorder:
    """A recorder of all that follows in this lab."""
    runtime = Scaling(100.0, (0.0, 1.0))
    jobs = tuple(TraceJob(JobId(name), 0.0, job(name), runtime, 2) for name in names)
    recorder = Recorder(Workload("made", jobs), NODES, lambda _: None, record_spans=False)
    write = lab.store.write

    def record(batch: Batch) -> Future[None]:
        recorder.record(lab.now, batch.effects)
        return write(batch)

    lab.store.write = record
    return recorder


def counts(recorder: Recorder) -> tuple[int, int]:
    run = recorder.result("any", [])
    return run.preemptions, run.resizes


def test_a_stop_for_a_new_size_is_a_resize():
    lab = Lab(NODES, policy="elastic-fifo")
    recorder = watched(lab, "a", "b")
    lab.run(job("a", "1..4"))
    lab.submit(job("b", 1))
    lab.round()
    lab.exited("a", 143)
    assert lab.state("a") is JobState.STARTING
    assert counts(recorder) == (0, 1)


def test_a_withdrawn_resize_is_a_preemption():
    lab = Lab(NODES, policy="elastic-fifo")
    recorder = watched(lab, "a", "b", "c")
    lab.run(job("a", "1..4"))
    lab.submit(job("b", 1))
    lab.round()
    lab.submit(job("c", 4, priority=9))
    lab.round()
    lab.exited("a", 143)
    assert lab.state("a") is JobState.QUEUED
    assert counts(recorder) == (1, 0)
    lab.cancel("c")
    lab.exited("c", 143)
    lab.round()
    assert lab.state("a") is JobState.STARTING
    assert counts(recorder) == (1, 0)
