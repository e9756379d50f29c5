"""Decisions that all workers of a process group share, such as a stop after the same step.

Each worker gets its orders separately, so the workers agree with a collective.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from rota_trainer.run import Run


def attach(run: Run) -> None:
    """Let `run` ask the process group, if one is initialized, before it stops."""
    run.agree = any_worker


def any_worker(flag: bool) -> bool:
    """Whether `flag` is set in any worker. A collective: every worker must call it."""
    if not _has_peers():
        return flag
    flags = torch.tensor([int(flag)], dtype=torch.int32, device=device_for(_backends()))
    dist.all_reduce(flags, op=dist.ReduceOp.MAX)
    return bool(flags.item())


def gather(own: Any) -> list[Any]:
    """The values of all workers, in worker 0; an empty list in the other workers. A collective:
    every worker must call it."""
    if not _has_peers():
        return [own]
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(own, found)
    return found or []


def _has_peers() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _backends() -> str:
    """Such as `cpu:gloo,cuda:nccl`; older versions of torch return one name only."""
    if hasattr(dist, "get_backend_config"):
        return dist.get_backend_config()
    return dist.get_backend()


def device_for(backends: str) -> torch.device:
    """The device on which the group can reduce a tensor: the CPU if possible, because a collective
    on the CPU does not wait for GPU kernels."""
    devices = [each.split(":")[0] for each in backends.split(",") if ":" in each]
    if "cpu" in devices or (not devices and backends in ("gloo", "mpi")):
        return torch.device("cpu")
    kind = devices[0] if devices else "cuda"
    return torch.device(kind, getattr(torch, kind).current_device())
