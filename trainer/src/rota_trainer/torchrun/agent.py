"""The two things that an agent of torchrun does otherwise where its rendezvous is ours.

torchrun counts every failure of its processes as a failure of the job, also the one that follows
when another agent dies, and gives up where no restarts are left. And it has no word for a meeting
that is over before it began. Nothing of torch's allows to say otherwise, so two methods of its
agent are wrapped, for agents with our rendezvous only (docs/adr/0007).
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from typing import Any, Callable

from rota_trainer.torch_rendezvous import RotaRendezvous
from rota_trainer.torch_store import BrokenTurnError

WRAPPED = "_monitor_workers", "_rendezvous"
MARK = "adapted_by_rota"


def adapt() -> None:
    """Once in a process. Raises where torch's agent is not the one that we know."""
    from torch.distributed.elastic.agent.server import local_elastic_agent

    agent: Any = local_elastic_agent.LocalElasticAgent
    monitor, meet = (_method(agent, name) for name in WRAPPED)
    if not hasattr(monitor, MARK):
        agent._monitor_workers = _judging(monitor)
        agent._rendezvous = _persistent(meet)


def _method(agent: Any, name: str) -> Callable[[Any, Any], Any]:
    method: Any = getattr(agent, name, None)
    if method is None or list(inspect.signature(method).parameters) != ["self", "worker_group"]:
        import torch

        raise RuntimeError(
            f"torch {torch.__version__} has no {agent.__name__}.{name}(worker_group), on which "
            "--rdzv-backend rota rests; use another version of rota-trainer or torch, or "
            "--rdzv-backend c10d"
        )
    return method


def _judging(monitor: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(monitor)
    def judged(self: Any, worker_group: Any) -> Any:
        result = monitor(self, worker_group)
        rendezvous = worker_group.spec.rdzv_handler
        return rendezvous.judge(result) if isinstance(rendezvous, RotaRendezvous) else result

    setattr(judged, MARK, True)
    return judged


def _persistent(meet: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(meet)
    def persistent(self: Any, worker_group: Any) -> None:
        has_met = False
        while not has_met:
            with suppress(BrokenTurnError):
                meet(self, worker_group)
                has_met = True

    return persistent
