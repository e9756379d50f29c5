"""No job waits forever, however fragmented the free GPUs are."""

from dataclasses import replace

from rota.core.lifecycle.states import JobState
from tests.support.builders import QUICK, Lab, cluster, job


def one_gpu_on_each_node(*, is_guarded: bool) -> Lab:
    """Two nodes of two GPUs, each with one busy and one free; `big` wants two on one node."""
    rules = replace(QUICK, is_guarded=is_guarded, starvation_after_s=3600.0, restart_cost_s=1e9)
    lab = Lab(cluster("2x2"), rules=rules)
    lab.run(job("a"), job("b"), job("c"), job("d"))
    # Best fit filled one node after the other: of each pair one ends.
    lab.exited("b")
    lab.exited("d")
    lab.submit(job("big", 1, gpus_per_worker=2))
    lab.round()
    return lab


def test_a_job_waits_while_space_for_it_costs_too_much():
    for is_guarded in (True, False):
        lab = one_gpu_on_each_node(is_guarded=is_guarded)
        assert lab.state("big") is JobState.QUEUED


def test_a_starving_job_gets_space_at_any_cost():
    for is_guarded in (True, False):
        lab = one_gpu_on_each_node(is_guarded=is_guarded)
        lab.wait(3600.0)
        lab.round()
        moving = [name for name in ("a", "c") if lab.state(name) is JobState.STOPPING]
        assert len(moving) == 1
        lab.exited(moving[0], 143)
        assert lab.state("big") is JobState.STARTING
        assert lab.state(moving[0]) is JobState.STARTING


def test_progress_resets_the_idle_attempts():
    lab = Lab(cluster("1x1"))
    lab.run(job("a", retries=9))
    lab.exited("a", 137)
    run_again(lab)
    lab.progress("a", 1.0)
    lab.hold("a")
    lab.exited("a", 143)
    lab.release("a")
    for _ in range(2):
        run_again(lab)
        lab.exited("a", 137)
    assert lab.state("a") is JobState.QUEUED


def run_again(lab: Lab) -> None:
    lab.wait(600.0)
    lab.round()
    lab.started("a")


def test_a_job_of_several_types_chooses_the_free_type():
    lab = Lab(cluster("1x4 A, 1x4 B"))
    lab.run(job("a", 4, gpu_types=("A",)))
    lab.submit(job("b", 4, gpu_types=("A", "B")))
    lab.round()
    assert [lab.state(name) for name in "ab"] == [JobState.RUNNING, JobState.STARTING]


def test_two_jobs_of_several_types_do_not_crowd_one():
    lab = Lab(cluster("1x4 A, 1x4 B"))
    lab.submit(*(job(name, 4, gpu_types=("A", "B")) for name in "ab"))
    lab.round()
    assert [lab.state(name) for name in "ab"] == [JobState.STARTING, JobState.STARTING]
