"""What is remembered between one submit and the next."""

from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.events import NodeSeen
from rota.core.kernel import Kernel
from rota.core.model import Gpu, Node, NodeId
from rota.core.view import Rules
from rota.daemon.admission import Defaults
from rota.daemon.fields import RefusedError
from rota.daemon.intake import Intake
from rota.daemon.people import Caller
from rota.daemon.premises import ThisMachine
from rota.store.memory import MemoryStore
from rota.wire.jobs import JobRequest

ADA = Caller("ada", uid=1000)
TWO_GPUS = JobRequest(command=["p"], gpus="2", workdir="/")


def node(n_gpus: int) -> NodeSeen:
    return NodeSeen(Node(NodeId("node"), tuple(Gpu(each, "a100") for each in range(n_gpus))))


def test_what_can_never_run_is_asked_of_the_nodes_of_today() -> None:
    kernel = Kernel(Rules())
    shell: Any = SimpleNamespace(kernel=kernel)
    nothing: Any = None
    site: Any = SimpleNamespace(
        clock=lambda: 0.0,
        defaults=lambda _: Defaults(),
        snapshots=nothing,
        premises=ThisMachine(nothing, nothing, door=""),
    )
    intake = Intake(shell, MemoryStore(), site=site)
    kernel.apply(node(1), 0.0)
    with pytest.raises(RefusedError, match="no single node has 2 GPUs"):
        intake.admit(ADA, [TWO_GPUS])
    kernel.apply(node(2), 1.0)
    assert len(intake.admit(ADA, [TWO_GPUS])) == 1
    kernel.apply(node(1), 2.0)
    with pytest.raises(RefusedError, match="no single node has 2 GPUs"):
        intake.admit(ADA, [TWO_GPUS])
