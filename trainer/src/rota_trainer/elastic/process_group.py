"""The process group of one generation. Any thread can abort it; after that it is not used again."""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import contextlib
import threading
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from rota_trainer.elastic.abortable_sockets import AbortableSockets, open_sockets, opened_since

OPEN_S = 10.0
"""The time for members to connect to each other. All of them are ready at this point."""
COLLECTIVE_S = 86400.0
"""The timeout of a collective. It is long because a slow step is no error: a collective that hangs
is aborted when the daemon reports a failed worker."""
CLOSING_BARRIER_S = 5.0


class ElasticProcessGroup:
    """The default process group of torch for this generation. `device` holds the tensors of its
    collectives. Votes are on the CPU, so that they do not wait for GPU kernels."""

    def __init__(self, device: torch.device, connections: AbortableSockets) -> None:
        self.device = device
        self.is_aborted = False
        self._members: Any = dist.group.WORLD
        self._least = dist.AllreduceOptions()
        self._least.reduceOp = dist.ReduceOp.MIN
        self._connections = connections
        self._lock = threading.Lock()

    def vote(self, values: list[int]) -> Any:
        """Start the minimum of each value over all workers; `Vote.result` waits for it."""
        votes = torch.tensor(values, dtype=torch.int64)
        # Faster than `dist.all_reduce`, which looks up the group: this runs in many steps.
        return Vote(votes, self._members.allreduce([votes], self._least))

    def closing_barrier(self) -> None:
        """Wait until all members have their results, before connections are closed."""
        with contextlib.suppress(RuntimeError):
            votes = torch.zeros(1, dtype=torch.int64)
            work = dist.all_reduce(votes, async_op=True)
            work.wait(timedelta(seconds=CLOSING_BARRIER_S))

    def wait_for_gradients(self) -> None:
        """Wait until the gradients have arrived. NCCL kernels run asynchronously, and an aborted
        one leaves invalid gradients, which must not be applied."""
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()
            if self.is_aborted:
                raise dist.DistBackendError("the process group was aborted")

    def is_cause_of(self, error: BaseException) -> bool:
        """Whether an error comes from a collective that cannot finish."""
        if not isinstance(error, RuntimeError):
            return False
        is_distributed = isinstance(error, dist.DistError)
        return is_distributed or self.is_aborted or not self._connections.are_established()

    def abort(self) -> None:
        """End every collective, here and in all peers. Any thread may call it, repeatedly."""
        with self._lock:
            if self.is_aborted:
                return
            self.is_aborted = True
            self._connections.shut_down()
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


def open_group(
    store: Any, *, rank: int, size: int, backend: str | None, ports: set[int]
) -> ElasticProcessGroup:
    """Open the process group. Raises RuntimeError if a member does not connect. `ports` are the
    ports of stores, whose connections do not belong to the group."""
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
    group = ElasticProcessGroup(device, connections)
    _set_collective_timeout()
    return group


def _set_collective_timeout() -> None:
    timeout = timedelta(seconds=COLLECTIVE_S)
    if hasattr(dist, "set_timeout"):
        dist.set_timeout(timeout)
    else:
        dist.distributed_c10d._set_pg_timeout(timeout)  # type: ignore[attr-defined]
