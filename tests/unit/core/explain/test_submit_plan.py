"""Plans of jobs that are not submitted yet."""

from collections.abc import Sequence
from copy import deepcopy

from rota.core.explain.submit_plan import PlannedStart, plan_submit
from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import JobSubmitted
from rota.core.model.job import Job, JobId, JobSpec
from rota.core.scheduling.policy_api import Budget, Targets
from tests.support.builders import Lab, cluster, job, slots


def new(spec: JobSpec, *, now: float = 0.0, is_held: bool = False) -> Job:
    return new_job(JobSubmitted(JobId(f"~{spec.name}"), spec, is_held=is_held), now, known=None)


def planned(lab: Lab, *specs: JobSpec) -> list[PlannedStart]:
    jobs = [new(spec, now=lab.now) for spec in specs]
    return plan_submit(lab.kernel.peek(lab.now), jobs, policy=lab.policy)


def test_job_that_fits_starts_now() -> None:
    lab = Lab(cluster("1x4"))
    lab.run(job("a", 2))
    [found] = planned(lab, job("new", 2))
    assert found.slots == slots("1:2", "1:3")
    assert (found.reason, found.ahead, found.changes) == ("", (), ())


def test_job_waits_behind_others() -> None:
    lab = Lab(cluster("1x2 A, 1x1 B"))
    lab.run(job("a", 2, gpu_types=("A",)), job("b", gpu_types=("B",)))
    lab.submit(job("low", priority=-1, gpu_types=("A",)), job("other", gpu_types=("B",)))
    lab.submit(job("first", 2, gpu_types=("A",)), job("urgent", 2, priority=0, gpu_types=("A",)))
    [found] = planned(lab, job("new", 2, gpu_types=("A",)))
    assert found.slots == ()
    assert found.reason.startswith("waits for 2 A GPUs: 2 running,")
    assert found.ahead == ("first", "urgent")


def test_jobs_of_one_submit_are_planned_together() -> None:
    lab = Lab(cluster("1x2"))
    first, second = planned(lab, job("x", 2), job("y", 2))
    assert first.slots == slots("1:0", "1:1")
    assert second.reason == "waits for 2 GPUs: 1 running, 0 ahead in the queue"


def test_job_that_no_node_can_run_is_explained() -> None:
    [found] = planned(Lab(cluster("1x2")), job("new", 3))
    assert found.slots == ()
    assert found.reason == "can never run on this cluster: requests 3 GPUs, at most 2 fit"


def test_job_that_would_preempt_names_the_others() -> None:
    lab = Lab(cluster("1x2 A, 1x1 B"))
    lab.run(job("low", 2, gpu_types=("A",)), job("other", gpu_types=("B",)))
    [found] = planned(lab, job("new", 2, priority=5, gpu_types=("A",)))
    assert found.slots == slots("1:0", "1:1")
    assert [(each.job_id, each.after) for each in found.changes] == [("low", ())]


def test_elastic_job_that_would_shrink_is_named() -> None:
    lab = Lab(cluster("1x4"), policy="elastic-fifo")
    lab.run(job("wide", "1..4"))
    [found] = planned(lab, job("new", 1))
    assert len(found.slots) == 1
    [change] = found.changes
    assert (change.job_id, len(change.before), len(change.after)) == ("wide", 4, 3)


def test_held_and_dependent_jobs_wait_without_a_round() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a"))
    lab.policy = NoPolicy()
    jobs = [new(job("held"), is_held=True), new(job("later", after=(JobId("a"),)))]
    found = plan_submit(lab.kernel.peek(lab.now), jobs, policy=lab.policy)
    assert [each.reason for each in found] == [
        "held until a user releases it",
        "waits for a to succeed",
    ]


def test_policy_without_a_valid_plan_is_the_reason() -> None:
    lab = Lab(cluster("1x2"))
    lab.policy = NoPolicy()
    [found] = planned(lab, job("new"))
    assert found.slots == ()
    assert found.reason.startswith("the policy made no valid plan: ")


def test_plan_changes_nothing() -> None:
    lab = Lab(cluster("1x2"))
    lab.run(job("a", 2))
    lab.submit(job("b", 2))
    before = deepcopy((lab.kernel.jobs, lab.kernel.peek(lab.now).planned))
    planned(lab, job("new", 2, priority=5))
    assert (lab.kernel.jobs, lab.kernel.peek(lab.now).planned) == before
    assert lab.kernel.wants_round


class NoPolicy:
    """A policy that fails."""

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        raise ValueError(f"{len(jobs)} jobs, {budget.free} GPUs at {now}")
