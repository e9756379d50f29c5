"""Missing GPUs: the workers that hold them keep running, and no other worker gets the GPUs."""

from dataclasses import replace

from rota.core.lifecycle.states import JobState
from rota.core.model.commands import StartWorkers
from rota.core.model.events import NodeSeen
from rota.core.model.job import GpuShare, JobId, JobSpec
from rota.core.scheduling.view import Rules
from tests.support.builders import Lab, cluster, job, slots

B = JobId("b")
RULES = Rules(min_runtime_s=0.0, restart_cost_s=0.0)


def lab_with(nodes: str, *specs: JobSpec) -> Lab:
    lab = Lab(cluster(nodes), rules=RULES)
    lab.run(*specs)
    return lab


def miss(lab: Lab, *indices: int) -> None:
    """The node sees all its GPUs but these."""
    (node,) = lab.kernel.nodes.values()
    changed = replace(node, missing_gpus=frozenset(indices))
    assert lab.tell(NodeSeen(changed)) == []


def test_workers_on_missing_gpus_stay_and_the_gpus_are_not_given_again() -> None:
    lab = lab_with("1x3", job("a", gpus=2))
    assert lab.job("a").allocation == slots("1:0", "1:1")
    miss(lab, 0, 1)
    assert lab.round() == []
    lab.submit(job("b"), job("c"))
    assert lab.round() == [StartWorkers(B, 1, 0, slots("1:2"))]
    lab.exited("a", 0)
    assert lab.round() == []
    miss(lab)
    assert [type(each) for each in lab.round()] == [StartWorkers]
    assert lab.state("c") is JobState.STARTING


def test_all_gpus_missing_keeps_all_jobs() -> None:
    lab = lab_with("1x2", job("a"), job("b", gpus="1..3"))
    miss(lab, 0, 1)
    lab.submit(job("c", priority=9))
    assert lab.round() == []
    assert (lab.state("a"), lab.state("b")) == (JobState.RUNNING, JobState.RUNNING)


def test_victims_hold_gpus_that_the_new_job_can_use() -> None:
    lab = lab_with("1x2", job("a"), job("b"))
    (taken,) = lab.job("b").allocation
    miss(lab, *taken.gpus)
    lab.submit(job("c", priority=9))
    lab.round()
    assert (lab.state("a"), lab.state("b")) == (JobState.STOPPING, JobState.RUNNING)


def test_shares_of_a_missing_gpu_stay_and_take_no_new_worker() -> None:
    half = GpuShare(fraction=0.5)
    lab = lab_with("1x1", job("a", gpus_per_worker=0, share=half))
    miss(lab, 0)
    lab.submit(job("b", gpus_per_worker=0, share=half))
    assert lab.round() == []
    assert lab.state("a") is JobState.RUNNING
    miss(lab)
    assert [each.job_id for each in lab.round()] == [B]
