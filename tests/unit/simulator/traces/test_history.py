"""An exported history is a trace that the simulator reads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rota.core.model.job import Mode
from rota.simulator.traces import load
from rota.simulator.traces.history import fits_trace, trace_text
from tests.golden.fake_client import RAN


def test_a_trace_reads_what_the_history_says(tmp_path: Path):
    later = replace(
        RAN,
        id="1q1gxzs9",
        name='a "quoted", name',
        submitted_s=RAN.submitted_s + 60.5,
        gpus="0.5",
        speedups=[],
        epochs=None,
    )
    path = tmp_path / "trace.csv"
    path.write_text(trace_text([later, RAN]))
    first, second = load(str(path)).jobs
    assert (first.submit_s, second.submit_s) == (0.0, 60.5)
    spec = first.spec
    assert (spec.name, spec.user, spec.project, spec.priority) == ("bert", "user-1", "vision", 5)
    assert (spec.min_workers, spec.max_workers, spec.requested_workers) == (1, 4, 2)
    assert (spec.gpu_types, spec.node_labels) == (("A100", "V100"), frozenset({("disk", "ssd")}))
    assert (spec.memory_bytes, spec.mode, spec.category) == (2 * 2**30, Mode.RESTART, "c1")
    assert (spec.epochs, spec.min_runtime_s) == (10, 30.0)
    assert spec.estimate is not None
    assert (spec.estimate.seconds, spec.estimate.speedups) == (3725.5, (0, 1, 1.8, 2.5, 3.1))
    assert second.spec.name == 'a "quoted", name'
    assert second.spec.share is not None
    assert second.spec.share.fraction == 0.5


def test_a_large_job_needs_measured_speedups():
    large = replace(RAN, gpus="1..600@1", speedups=[])
    assert not fits_trace(large)
    assert fits_trace(replace(large, speedups=[1.0] * 600))
    assert fits_trace(replace(large, gpus="8..600@8", gpus_per_worker=8))
