"""Checks of a submit that depend on the caller and on the nodes."""

from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.kernel.kernel import Kernel
from rota.core.model.events import NodeSeen
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.scheduling.view import Rules
from rota.daemon.access.authorization import Caller, PriorityLimits
from rota.daemon.errors import RefusedError
from rota.daemon.jobs.admission import Defaults
from rota.daemon.jobs.job_lookup import JobDirectory
from rota.daemon.jobs.submission import SubmissionService
from rota.daemon.launch.local import LocalEnvironment
from rota.store.memory import MemoryStore
from rota.wire.jobs import JobRequest

ADA = Caller("ada", uid=1000)
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


def test_only_administrators_submit_with_a_high_priority() -> None:
    kernel = Kernel(Rules())
    kernel.apply(node(2), 0.0)
    urgent = JobRequest(command=["p"], gpus="1", workdir="/", priority=5)
    with pytest.raises(RefusedError, match="priority: 5 is above the limit of 0"):
        service_of(kernel).admit(ADA, [urgent])
    assert service_of(kernel).admit(Caller("ada", uid=1000, is_admin=True), [urgent])
