"""Wraps two methods of torchrun's agent, for agents that use the rota rendezvous only.

torchrun counts every failure of its processes as a failure of the job, also one that is caused by
another agent's exit, and it fails if no restarts are left. It also cannot retry a rendezvous whose
members change while it forms. torch has no extension point for either (docs/adr/0007).
"""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from typing import Any, Callable

from rota_trainer.torchrun.handler import RotaRendezvous
from rota_trainer.torchrun.store import RendezvousBrokenError

WRAPPED = "_monitor_workers", "_rendezvous"
MARK = "adapted_by_rota"


def patch_agent() -> None:
    """Wrap the methods, once per process. Raises RuntimeError if this version of torch has not the
    expected methods."""
    from torch.distributed.elastic.agent.server import local_elastic_agent

    agent: Any = local_elastic_agent.LocalElasticAgent
    monitor, join = (_method(agent, name) for name in WRAPPED)
    if not hasattr(monitor, MARK):
        agent._monitor_workers = _with_failure_check(monitor)
        agent._rendezvous = _with_retries(join)


def _method(agent: Any, name: str) -> Callable[[Any, Any], Any]:
    method: Any = getattr(agent, name, None)
    if method is None or list(inspect.signature(method).parameters) != ["self", "worker_group"]:
        import torch

        raise RuntimeError(
            f"torch {torch.__version__} has no {agent.__name__}.{name}(worker_group), which "
            "--rdzv-backend rota needs; use another version of rota-trainer or torch, or "
            "--rdzv-backend c10d"
        )
    return method


def _with_failure_check(monitor: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(monitor)
    def checked(self: Any, worker_group: Any) -> Any:
        result = monitor(self, worker_group)
        rendezvous = worker_group.spec.rdzv_handler
        return rendezvous.check_result(result) if isinstance(rendezvous, RotaRendezvous) else result

    setattr(checked, MARK, True)
    return checked


def _with_retries(join: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    @functools.wraps(join)
    def retried(self: Any, worker_group: Any) -> None:
        has_joined = False
        while not has_joined:
            with suppress(RendezvousBrokenError):
                join(self, worker_group)
                has_joined = True

    return retried
