"""Submits: the feasibility check follows the current nodes, and each person has limits."""

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rota.config.limits import UserLimits
from rota.core.kernel.kernel import Kernel
from rota.core.model.events import JobCancelled, NodeSeen
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.scheduling.view import Rules
from rota.daemon.access.authorization import Caller, PriorityLimits
from rota.daemon.errors import LimitError, RefusedError
from rota.daemon.jobs import submission
from rota.daemon.jobs.admission import Defaults, admit
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.launch.local import LocalEnvironment
from rota.store.interface import Batch
from rota.store.memory import MemoryStore
from rota.wire.jobs import JobRequest

ADA, BOB = Caller("ada", uid=1000), Caller("bob", uid=1001)
LIMITS = UserLimits(max_queued_jobs=3)
TWO_GPUS = JobRequest(command=["p"], gpus="2", workdir="/")


def node(n_gpus: int) -> NodeSeen:
    return NodeSeen(Node(NodeId("node"), tuple(Gpu(each, "a100") for each in range(n_gpus))))


def service_of(kernel: Kernel) -> SubmissionService:
    controller: Any = kernel
    nothing: Any = None
    site: Any = SimpleNamespace(
        clock=lambda: 0.0,
        defaults=lambda _: Defaults(),
        snapshots=nothing,
        limits=LIMITS,
        launch_environment=LocalEnvironment(nothing, nothing, socket_dir=""),
        priority_limits=PriorityLimits(),
    )
    store = MemoryStore()
    return SubmissionService(
        controller, store, directory=JobDirectory(controller, store), site=site
    )


def test_feasibility_is_checked_against_the_current_nodes() -> None:
    kernel = Kernel(Rules())
    submission_service = service_of(kernel)
    kernel.apply(node(1), 0.0)
    with pytest.raises(RefusedError, match="requests 2 GPUs, at most 1 fit on 1 node"):
        submission_service.admit(ADA, [TWO_GPUS])
    kernel.apply(node(2), 1.0)
    assert len(submission_service.admit(ADA, [TWO_GPUS])) == 1
    kernel.apply(node(1), 2.0)
    with pytest.raises(RefusedError, match="requests 2 GPUs, at most 1 fit on 1 node"):
        submission_service.admit(ADA, [TWO_GPUS])


def test_job_from_a_cluster_is_not_refused_over_its_network() -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(2), 0.0)
    request = JobRequest(
        command=["p"], gpus="1..2", processes="per-gpu", image="torch", workdir="/"
    )
    with pytest.raises(RefusedError, match="submit the job with --host-network"):
        service_of(kernel).admit(ADA, [request])
    (moved,) = service_of(kernel).admit(ADA, [request], is_moved=True)
    assert moved.request.host_network


class QuickController:
    """A kernel whose writes are durable at once."""

    def __init__(self, kernel: Kernel, store: MemoryStore) -> None:
        self._kernel, self._store = kernel, store
        self.nodes, self.n_queued, self.jobs = kernel.nodes, kernel.n_queued, kernel.jobs

    def require_available(self) -> None: ...

    def apply_events(self, events: Any, submissions: Any, *, actor: str) -> None:
        effects = self._kernel.apply_all(events, 0.0)
        self._store.write(Batch(effects, tuple(submissions), actor=actor))

    async def durable(self, _: None) -> None: ...


def with_store(kernel: Kernel, **limits: int) -> SubmissionService:
    store, nothing = MemoryStore(), cast("Any", None)
    controller = cast("Any", QuickController(kernel, store))
    environment = LocalEnvironment(nothing, nothing, socket_dir="")
    site: Any = SimpleNamespace(
        clock=lambda: 0.0,
        defaults=lambda _: Defaults(),
        snapshots=nothing,
        limits=UserLimits(**limits),
        priority_limits=PriorityLimits(),
        launch_environment=environment,
    )
    return SubmissionService(
        controller, store, directory=JobDirectory(controller, store), site=site
    )


ONE = JobRequest(command=["p"], gpus="0", workdir="/")


def test_one_person_cannot_fill_the_queue() -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(1), 0.0)
    service = with_store(kernel, max_queued_jobs=3)

    async def scenario() -> None:
        await service.submit(ADA, [ONE, ONE])
        with pytest.raises(LimitError, match="max_queued_jobs"):
            await service.submit(ADA, [ONE, ONE])
        await service.submit(BOB, [ONE, ONE])
        (job, *_) = kernel.jobs
        kernel.apply(JobCancelled(job), 1.0)
        await service.submit(ADA, [ONE, ONE])

    asyncio.run(scenario())
    assert (kernel.n_queued("ada"), kernel.n_queued("bob")) == (3, 2)


def test_one_person_cannot_fill_the_store_with_requests() -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(1), 0.0)
    service = with_store(kernel, max_request_bytes=20_000)
    large = replace(ONE, command=["p", "x" * 15_000])

    async def scenario() -> None:
        await service.submit(ADA, [replace(large, array="0-99")])
        await service.submit(ADA, [large])
        with pytest.raises(LimitError, match="max_request_bytes"):
            await service.submit(ADA, [ONE])
        await service.submit(BOB, [ONE])

    asyncio.run(scenario())


def test_a_large_array_is_checked_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(1), 0.0)
    service = with_store(kernel)
    threads: list[int] = []

    def recorded(*given: Any, **more: Any) -> Any:
        threads.append(threading.get_ident())
        return admit(*given, **more)

    monkeypatch.setattr(submission, "admit", recorded)

    async def scenario() -> None:
        await service.submit(ADA, [replace(ONE, array="0-999")])
        await service.check(ADA, [replace(ONE, name=f"n{number}") for number in range(100)])
        assert threading.get_ident() not in threads
        await service.check(ADA, [ONE])
        assert threading.get_ident() in threads

    asyncio.run(scenario())
    assert len({job.spec.array for job in kernel.jobs.values()}) == 1
    assert kernel.n_queued("ada") == 1000


def test_only_administrators_submit_with_a_high_priority() -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(2), 0.0)
    urgent = JobRequest(command=["p"], gpus="1", workdir="/", priority=5)
    with pytest.raises(RefusedError, match="priority: 5 is above the limit of 0"):
        service_of(kernel).admit(ADA, [urgent])
    assert service_of(kernel).admit(Caller("ada", uid=1000, is_admin=True), [urgent])
