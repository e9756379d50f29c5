"""Short builders of clusters, jobs and views for the tests of a round's steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import Job, JobId, JobSpec, Queued, Running, ServiceTime, Starting
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.rank import rank_of
from rota.core.model.units import GIB
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.placer import Placement, place
from rota.core.placement.wish import Demand, Wish, demand_of
from rota.core.scheduling.divide import divide
from rota.core.scheduling.preemption import by_difficulty, changes
from rota.core.scheduling.sizing import Sizes
from rota.core.scheduling.view import Rules, View

CARD_BYTES = 16 * GIB


def nodes(sizes: str, **common: Any) -> list[Node]:
    """`nodes("4 2:B")`: n1 with four GPUs of type A and n2 with two of type B."""
    return [_node(f"n{place}", size, common) for place, size in enumerate(sizes.split(), start=1)]


def _node(name: str, size: str, common: dict[str, Any]) -> Node:
    n_gpus, _, gpu_type = size.partition(":")
    gpus = tuple(Gpu(index, gpu_type or "A", CARD_BYTES) for index in range(int(n_gpus)))
    return Node(NodeId(name), gpus, **common)


def job(name: str, sizes: str = "1", **changes: Any) -> Job:
    """`job("a", "1..4@2")`: a waiting job. `changes` are fields of the spec or of the job."""
    interval, _, requested = sizes.partition("@")
    least, _, most = interval.partition("..")
    in_spec = {key: changes.pop(key) for key in list(changes) if key in JobSpec.__slots__}
    spec = JobSpec(
        name=name,
        min_workers=int(least),
        max_workers=int(most or least),
        requested_workers=int(requested or least),
        **in_spec,
    )
    fields: dict[str, Any] = {
        "submitted_s": 0.0,
        "phase": Queued(0.0),
        "service": ServiceTime(as_of_s=0.0),
        **changes,
    }
    return Job(id=JobId(name), spec=spec, **fields)


def slots(text: str, share_bytes: int = 0) -> Allocation:
    """`slots("n1/0 n1/1,2")`: worker 0 on one GPU of n1, worker 1 on two others."""
    return tuple(_slot(word, share_bytes) for word in text.split())


def _slot(word: str, share_bytes: int) -> Slot:
    node, _, gpus = word.partition("/")
    indices = tuple(int(index) for index in gpus.split(",") if index)
    fraction = share_bytes / CARD_BYTES if share_bytes else 1.0
    return Slot(NodeId(node), indices, share_bytes, fraction)


def runs(
    name: str, where: str | Allocation, sizes: str = "", *, since_s: float = -3600.0, **changes: Any
) -> Job:
    """A job that has been running there for a long time; of exactly that size if none is given."""
    allocation = slots(where) if isinstance(where, str) else where
    changes.setdefault("phase", Running(since_s, allocation, tuple(range(len(allocation)))))
    changes.setdefault("gpus", len(allocation[0].gpus))
    return job(name, sizes or str(len(allocation)), **changes)


def view(cluster: list[Node], *jobs: Job, now: float = 0.0, rules: Rules | None = None) -> View:
    """The view of a round when everything runs as planned."""
    empty = ClusterCapacity(cluster)
    free = empty.copy()
    by_id = {node.id: node for node in cluster}
    planned: dict[JobId, Allocation] = {}
    gpu_types: dict[JobId, str] = {}
    for each in jobs:
        if isinstance(each.phase, Running | Starting):
            planned[each.id] = each.allocation
            gpu_types[each.id] = type_of(each.allocation, by_id)
            free.take(each.allocation, demand_of(each, gpu_types[each.id]))
    by_job_id = {each.id: each for each in jobs}
    return View(now, by_job_id, by_id, planned, gpu_types, free, empty, rules or Rules())


def type_of(allocation: Allocation, by_id: Mapping[NodeId, Node]) -> str:
    slot = allocation[0]
    return next((gpu.type for gpu in by_id[slot.node].gpus if gpu.index in slot.gpus), "")


@dataclass(frozen=True)
class Request:
    """What a test wants a job to hold."""

    job: Job
    workers: int
    gpu_type: str

    @property
    def demand(self) -> Demand:
        return demand_of(self.job, self.gpu_type)


def request(of: Job, workers: int | None = None, gpu_type: str = "A") -> Request:
    size = of.spec.min_workers if workers is None else workers
    return Request(of, size, gpu_type if of.spec.uses_gpus else "")


def sizes_of(requests: Sequence[Request]) -> Sizes:
    """The requests as if the policy had granted them in this order."""
    return Sizes(
        {each.job.id: each.workers for each in requests},
        {each.job.id: each.gpu_type for each in requests},
    )


def wishes_of(
    before: View,
    requests: Sequence[Request],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> list[Wish]:
    """The wishes of all jobs that change, without a guard. `movable` jobs leave their slots."""
    shares = divide(before)
    wishes = {wish.job.id: wish for wish in changes(shares, sizes_of(requests))}
    for each in requests:
        job_id = each.job.id
        if job_id in movable and job_id in before.planned:
            held, rank = before.planned[job_id], rank_of(each.job)
            wishes[job_id] = Wish(each.job, rank, each.workers, each.demand, held, leaves=True)
    return list(wishes.values()) if in_order else by_difficulty(wishes.values(), before)


def place_all(
    before: View,
    requests: Sequence[Request],
    *,
    movable: Collection[JobId] = (),
    in_order: bool = False,
) -> Placement:
    wishes = wishes_of(before, requests, movable=movable, in_order=in_order)
    return place(wishes, capacity=before.free, planned=before.planned)


def placed_anew(cluster: list[Node], *jobs: Job, gpu_type: str = "A") -> Placement:
    """All these jobs at their minimum on an empty cluster."""
    return place_all(view(cluster, *jobs), [request(each, gpu_type=gpu_type) for each in jobs])


def spots(allocation: Allocation) -> str:
    """The inverse of `slots`."""
    words = (f"{slot.node}/{','.join(map(str, slot.gpus))}" for slot in allocation)
    return " ".join(word.rstrip("/") for word in words)


def where(placed: Placement) -> dict[str, str]:
    return {str(job_id): spots(held) for job_id, held in placed.allocations.items()}


def n_by_node(allocation: Allocation) -> dict[str, int]:
    counts: dict[str, int] = {}
    for slot in allocation:
        counts[slot.node] = counts.get(slot.node, 0) + 1
    return counts
