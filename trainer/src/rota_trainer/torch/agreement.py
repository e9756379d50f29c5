"""All workers of a process group stop after the same step, although each hears for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

if TYPE_CHECKING:
    from rota_trainer.run import Run


def attach(run: Run) -> None:
    """Let `run` ask the process group, if there is one by then, before it stops."""
    run.agree = any_worker


def any_worker(flag: bool) -> bool:
    """Whether `flag` is set in any worker. Every worker has to ask; all get the same answer."""
    if not _has_others():
        return flag
    asked = torch.tensor([int(flag)], dtype=torch.int32, device=device_for(_backends()))
    dist.all_reduce(asked, op=dist.ReduceOp.MAX)
    return bool(asked.item())


def gathered(own: Any) -> list[Any]:
    """What every worker has, in worker 0; nothing in the others. Every worker has to take part."""
    if not _has_others():
        return [own]
    found: list[Any] | None = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(own, found)
    return found or []


def _has_others() -> bool:
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def _backends() -> str:
    """Such as `cpu:gloo,cuda:nccl`; older versions of torch give a bare name."""
    if hasattr(dist, "get_backend_config"):
        return dist.get_backend_config()
    return dist.get_backend()


def device_for(backends: str) -> torch.device:
    """Where the group can reduce a tensor: on the CPU wherever it can, because that waits for no
    kernel that is still running on the GPU."""
    devices = [each.split(":")[0] for each in backends.split(",") if ":" in each]
    if "cpu" in devices or (not devices and backends in ("gloo", "mpi")):
        return torch.device("cpu")
    kind = devices[0] if devices else "cuda"
    return torch.device(kind, getattr(torch, kind).current_device())
