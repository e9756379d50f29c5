"""Results of whole rounds, seen from their commands: priorities, GPU types, jobs without GPUs."""

from rota.core.lifecycle.states import JobState
from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers, StopWorkers
from rota.core.model.job import GpuShare, JobId
from rota.core.model.units import GIB
from rota.core.scheduling.plan import diff
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.policies.registry import parse
from tests.support.builders import Lab, applied, cluster, job, slots

A, B = JobId("a"), JobId("b")


def test_a_higher_priority_is_sized_first() -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2), job("b", gpus=2, priority=1))
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:0", "1:1"))]


def test_a_higher_priority_takes_gpus_even_within_a_minimum_run_time() -> None:
    lab = Lab(cluster("1x2"), rules=Rules(min_runtime_s=3600.0))
    lab.run(job("a", gpus=2))
    lab.submit(job("b", gpus=2, priority=1))
    assert lab.round() == [StopWorkers(A, 1, (0, 1), 30.0)]
    assert lab.exited("a", 143) == [StartWorkers(B, 1, 0, slots("1:0", "1:1"))]


def test_an_equal_priority_waits_for_the_minimum_run_time() -> None:
    lab = Lab(cluster("1x2"), rules=Rules(min_runtime_s=60.0))
    lab.submit(job("b", gpus=2, min_runtime_s=0.0), is_held=True)
    lab.run(job("a", gpus=2))
    lab.release("b")
    assert lab.round() == []
    assert lab.state("a") is JobState.RUNNING
    lab.wait(60)
    assert lab.round() == [StopWorkers(A, 1, (0, 1), 30.0)]


def test_jobs_without_gpus_are_bounded_by_cpus_and_memory() -> None:
    lab = Lab(cluster("1x0/4cpu/8GiB"))
    lab.submit(
        job("a", gpus_per_worker=0, cpus=3.0),
        job("b", gpus_per_worker=0, cpus=2.0),
        job("c", gpus_per_worker=0, cpus=1.0, memory_bytes=9 * GIB),
        job("d", gpus_per_worker=0, cpus=1.0, memory_bytes=8 * GIB),
    )
    assert lab.round() == [
        StartWorkers(A, 1, 0, slots("1:")),
        StartWorkers(JobId("d"), 1, 0, slots("1:")),
    ]
    lab.exited("a")
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:"))]


def test_shares_of_one_gpu_are_held_together() -> None:
    lab = Lab(cluster("1x2"))
    half = GpuShare(fraction=0.5)
    lab.submit(*(job(name, share=half, gpus_per_worker=0) for name in "abc"))
    share = Slot(slots("1:")[0].node, (0,), 8 * GIB, 0.5)
    assert [order.allocation for order in lab.round() if isinstance(order, StartWorkers)] == [
        (share,),
        (share,),
        (Slot(share.node, (1,), 8 * GIB, 0.5),),
    ]


def test_a_job_runs_on_a_type_that_it_accepts() -> None:
    lab = Lab(cluster("1x4 V100, 1x4 A100"))
    lab.submit(job("a", gpus=2, gpu_types=("A100",)), job("b", gpus=2, gpu_types=("H100",)))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("2:0", "2:1"))]


def test_a_job_that_accepts_several_types_never_spans_them() -> None:
    lab = Lab(cluster("1x2 V100, 1x2 A100"), policy="elastic-fifo")
    lab.submit(job("a", gpus="1..4", gpu_types=("A100", "V100")), job("b", gpus=3))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("2:0", "2:1"))]


def test_several_gpus_for_each_worker_are_on_one_node() -> None:
    lab = Lab(cluster("2x3"))
    lab.submit(job("a", gpus=2, gpus_per_worker=2))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("1:0,1", "2:0,1"))]


def test_a_size_larger_than_the_cluster_is_no_target() -> None:
    """Tiresias gives what was requested, or as much of it as there could ever be."""
    lab = Lab(cluster("1x3"), policy="tiresias")
    lab.submit(job("a", gpus="2..8", requested_workers=6))
    assert lab.round() == [StartWorkers(A, 1, 0, slots("1:0", "1:1", "1:2"))]


def test_changes_lead_from_one_plan_to_another() -> None:
    before = {A: slots("1:0"), B: slots("1:1")}
    after = {B: slots("1:1", "1:2"), JobId("c"): slots("1:0")}
    assert applied(before, diff(before, after)) == after


def test_a_round_follows_when_a_started_job_changes_its_queue() -> None:
    lab = Lab(cluster("1x2"))
    lab.submit(job("a", gpus=2))
    plan = decide(lab.kernel.view(10.0), parse("tiresias:threshold_gpu_s=1800"))
    assert plan.wake_at_s == 10.0 + 1800 / 2


def test_a_free_gpu_is_preferred_to_a_gpu_that_is_being_released() -> None:
    """On the same node, or on another, although that is less tight."""
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus=1))
    lab.cancel("a")
    lab.submit(job("b", gpus=1), job("c", gpus=2))
    assert lab.round() == [
        StartWorkers(B, 1, 0, slots("1:1")),
        StartWorkers(JobId("c"), 1, 0, slots("2:0", "2:1")),
    ]
    lab.submit(job("d", gpus=1))
    assert lab.round() == []
    assert lab.exited("a", 143) == [StartWorkers(JobId("d"), 1, 0, slots("1:0"))]


def test_a_gang_prefers_gpus_that_are_free_now() -> None:
    lab = Lab(cluster("2x2"))
    lab.run(job("a", gpus=1))
    lab.cancel("a")
    lab.submit(job("b", gpus=2))
    assert lab.round() == [StartWorkers(B, 1, 0, slots("2:0", "2:1"))]
