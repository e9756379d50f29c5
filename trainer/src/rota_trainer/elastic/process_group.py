"""The process group of one generation: opened, used, broken from any thread, never used again."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rota_trainer.live.sockets import Connections, open_sockets, opened_since

OPEN_S = 10.0
"""All members have said that they come: this is for connecting to each other."""
COLLECTIVE_S = 86400.0
"""No step is too slow. What hangs is ended by what the daemon knows, not by a clock."""
PART_S = 5.0


class Group:
    """The default process group of torch for this generation. `device` is where tensors of its
    collectives live; votes are always on the CPU, so that they wait for no kernel."""

    def __init__(self, device: torch.device, connections: Connections) -> None:
        self.device = device
        self.is_aborted = False
        self._members: Any = dist.group.WORLD
        self._least = dist.AllreduceOptions()
        self._least.reduceOp = dist.ReduceOp.MIN
        self._connections = connections
        self._lock = threading.Lock()

    def vote(self, values: list[int]) -> Any:
        """Begin to find the least of each value over all workers; `result` of it waits."""
        votes = torch.tensor(values, dtype=torch.int64)
        # What `dist.all_reduce` does, without what it looks up for it: this is done in each step.
        return Vote(votes, self._members.allreduce([votes], self._least))

    def part(self) -> None:
        """Nobody closes a connection before all have what they need from it."""
        with contextlib.suppress(RuntimeError):
            votes = torch.zeros(1, dtype=torch.int64)
            work = dist.all_reduce(votes, async_op=True)
            work.wait(timedelta(seconds=PART_S))

    def settle(self) -> None:
        """Wait until the gradients are really there. Kernels of NCCL run behind the program's
        back: after an abort they leave behind what must not be learnt from."""
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
            if self.is_aborted:
                raise dist.DistBackendError("the process group was given up")

    def is_why(self, error: BaseException) -> bool:
        """Whether an error is that of a collective that cannot be finished."""
        if not isinstance(error, RuntimeError):
            return False
        is_ours = isinstance(error, dist.DistError)
        return is_ours or self.is_aborted or not self._connections.are_sound()

    def abort(self) -> None:
        """End every collective, here and in all peers. From any thread, any number of times."""
        with self._lock:
            if self.is_aborted:
                return
            self.is_aborted = True
            self._connections.end()
            if self.device.type == "cuda" and dist.is_initialized():
                with contextlib.suppress(RuntimeError):
                    dist.group.WORLD.abort()  # type: ignore[union-attr]

    def close(self) -> None:
        self.abort()
        with contextlib.suppress(RuntimeError, ValueError, AssertionError):
            dist.destroy_process_group()
        self._connections.close()


class Vote:
    def __init__(self, votes: torch.Tensor, work: Any) -> None:
        self._votes = votes
        self._work = work

    def result(self) -> list[int]:
        self._work.wait()
        return self._votes.tolist()


def open_group(store: Any, *, rank: int, size: int, backend: str | None, ports: set[int]) -> Group:
    """Raises RuntimeError when a member does not come. `ports` are those of stores."""
    device = torch.device("cuda" if torch.cuda.is_available() and backend != "gloo" else "cpu")
    if device.type == "cuda":
        device = torch.device("cuda", torch.cuda.current_device())
    both = f"cpu:gloo,cuda:{backend or 'nccl'}"
    before = open_sockets()
    dist.init_process_group(
        both if device.type == "cuda" else "gloo",
        store=store,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=OPEN_S),
    )
    connections = opened_since(before, belongs=lambda *both: ports.isdisjoint(both))
    group = Group(device, connections)
    _be_patient()
    return group


def _be_patient() -> None:
    patience = timedelta(seconds=COLLECTIVE_S)
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(patience)
    else:
        dist.distributed_c10d._set_pg_timeout(patience)  # type: ignore[attr-defined]
