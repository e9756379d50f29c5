"""The texts that explain why a job waits."""

from dataclasses import replace

from rota.core.explain.explain import WaitExplainer
from rota.core.kernel.kernel import Kernel
from rota.core.model.events import (
    JobHeld,
    JobSubmitted,
    NodeSeen,
    StartFailed,
    WorkersExited,
    WorkersLost,
)
from rota.core.model.job import Job, JobId, JobSpec
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules, View
from rota.policies.fifo import Fifo


def one_round(*specs: JobSpec) -> tuple[Kernel, View, Plan]:
    """Two GPUs on one node, and these jobs submitted one second apart."""
    kernel = Kernel(Rules())
    gpus = (Gpu(0, "T4"), Gpu(1, "T4"))
    kernel.apply(NodeSeen(Node(NodeId("n1"), gpus)), 0.0)
    for second, spec in enumerate(specs):
        kernel.apply(JobSubmitted(JobId(spec.name), spec), float(second))
    view = kernel.view(now=10.0)
    return kernel, view, decide(view, Fifo())


def why(name: str, *specs: JobSpec) -> str | None:
    kernel, view, plan = one_round(*specs)
    reason = WaitExplainer(view, plan).wait_reason(job(kernel, name))
    return None if reason is None else str(reason)


def job(kernel: Kernel, name: str) -> Job:
    found = kernel.job(JobId(name))
    assert found is not None
    return found


def gang(name: str, workers: int, **more: object) -> JobSpec:
    sizes = {"min_workers": workers, "max_workers": workers, "requested_workers": workers}
    return JobSpec(name, **sizes, **more)  # pyright: ignore[reportArgumentType]


def test_a_job_that_starts_does_not_wait():
    assert why("a", gang("a", 2)) is None


def test_a_queued_job_shows_how_many_are_ahead():
    jobs = (gang("a", 2), gang("b", 1), gang("c", 2))
    assert why("c", *jobs) == "waits for 2 GPUs: 1 running, 1 ahead in the queue"


def test_a_higher_priority_is_ahead_although_it_came_later():
    jobs = (gang("a", 2, priority=2), gang("b", 1), gang("c", 1, priority=1))
    assert why("b", *jobs) == ("waits for 1 GPU: 1 running, 1 ahead in the queue")


def test_a_gpu_type_that_no_node_has_is_named():
    assert why("a", gang("a", 1, gpu_types=("A100",))) == (
        "can never run on this cluster: requests a GPU of type A100, no node has one"
    )


def test_more_workers_than_the_cluster_holds_are_reported():
    assert why("a", gang("a", 3)) == (
        "can never run on this cluster: requests 3 GPUs, at most 2 fit"
    )


def test_a_job_that_waits_for_another_names_it():
    jobs = (gang("a", 1), gang("b", 1, after=(JobId("a"),)))
    assert why("b", *jobs) == "waits for a to succeed"


def test_a_held_job_shows_its_hold():
    kernel, view, plan = one_round(gang("a", 1))
    kernel.apply(JobHeld(JobId("a")), 11.0)
    reason = WaitExplainer(view, plan).wait_reason(job(kernel, "a"))
    assert str(reason) == "held until a user releases it"


def test_a_job_in_back_off_shows_why():
    kernel, _, _ = one_round(gang("a", 1))
    lost = [WorkersLost(JobId("a"), n, frozenset({0}), "no quota") for n in (1, 2)]
    now = 10.0
    for each in lost:
        view = kernel.view(now)
        kernel.commit(decide(view, Fifo()), now)
        kernel.apply(each, now)
    view = kernel.view(now)
    reason = WaitExplainer(view, decide(view, Fifo())).wait_reason(job(kernel, "a"))
    assert str(reason) == "waits before a retry: worker lost: no quota"


def test_a_job_starting_on_a_silent_node_shows_the_node():
    kernel, view, plan = one_round(gang("a", 1))
    kernel.commit(plan, 10.0)
    [node] = view.nodes.values()
    kernel.apply(NodeSeen(replace(node, note="does not answer", is_cordoned=True)), 10.0)
    view = kernel.view(10.0)
    reason = WaitExplainer(view, decide(view, Fifo())).wait_reason(job(kernel, "a"))
    assert str(reason) == "waits for node n1, which does not answer"


def test_job_whose_start_failed_after_the_round_shows_why_it_backs_off():
    kernel, view, plan = one_round(gang("a", 1))
    kernel.commit(plan, 10.0)
    started = job(kernel, "a")
    failed = StartFailed(started.id, started.attempt, started.generation, "no space left")
    kernel.apply(failed, 11.0)
    kernel.apply(WorkersExited(started.id, started.attempt, {0: 0}), 12.0)
    reason = str(WaitExplainer(view, plan).wait_reason(job(kernel, "a")))
    assert "cannot start: no space left" in reason
