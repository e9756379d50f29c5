"""The first step of a round: sorts all jobs into pools, the highest tier first.

Currently there is one pool for each GPU type and tier of ranks, and a higher tier is sized before a
lower one. Fair shares of projects and users will be part of this step. A job never spans GPU types,
so each job is given one type before the policy sizes it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.explain.reasons import Impossible, Reason, describe_request
from rota.core.lifecycle.cordons import held_under_cordon, is_size_frozen
from rota.core.lifecycle.size_caps import cap_of
from rota.core.model.job import Job, JobId
from rota.core.model.rank import Tier, tier_of
from rota.core.placement.slots import n_fitting
from rota.core.placement.wish import demand_of
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Pool:
    """The jobs that one call of the policy sizes together."""

    gpu_type: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Shares:
    """The pools in the order in which they are sized, and the GPUs of each type."""

    view: View
    pools: tuple[Pool, ...]
    gpus: Mapping[str, int]
    card_bytes: Mapping[str, int]
    """The mean memory of a type's GPUs, so that its budget covers all their memory."""
    limits: Mapping[JobId, int]
    """The largest size of jobs that are capped, that start with a size of their own, or that the
    nodes could not run at their maximum."""
    impossible: Mapping[JobId, Reason]
    """Jobs that the current nodes could not run even if they were empty."""


def divide(view: View) -> Shares:
    """Sort the jobs of a view into pools, in the order in which the policy sizes them."""
    jobs = view.jobs.values()
    own_units, own_gpus = held_under_cordon(jobs, view.planned, nodes=view.nodes)
    gpus = dict(view.empty.gpus)
    for gpu_type, cards in own_gpus.items():
        gpus[gpu_type] = gpus.get(gpu_type, 0) + len(cards)
    pools = defaultdict[tuple[bool, Tier, str], list[Job]](list)
    impossible: dict[JobId, Reason] = {}
    limits: dict[JobId, int] = {}
    chooser = _GpuTypeChooser(view, gpus, own_units)
    for job in sorted(jobs, key=tier_of) if len(gpus) > 1 else jobs:
        chosen = chooser.choose(job)
        if chosen is None:
            impossible[job.id] = Impossible(f"requests {describe_request(job)}")
            continue
        gpu_type, room, tier = chosen
        comes_first = False
        if job.id in own_units and is_size_frozen(job, view.planned[job.id], nodes=view.nodes):
            room = job.spec.units_in(view.planned[job.id])
            # If no other job can use the GPUs of this job, it comes first.
            comes_first = own_units[job.id] == room
        if job.cap is not None:
            cap = cap_of(job, view.now)
            room = room if cap is None else min(room, cap)
        if job.spec.start_units and job.id not in view.planned:
            room = min(room, job.spec.start_units)
        if room < job.spec.max_workers:
            limits[job.id] = room
        pools[not comes_first, tier, gpu_type].append(job)
    ordered = tuple(Pool(key[2], tuple(pools[key])) for key in sorted(pools))
    empty = view.empty
    mean_bytes = {gpu_type: empty.memory_bytes[gpu_type] // n for gpu_type, n in empty.gpus.items()}
    return Shares(view, ordered, gpus, {**empty.card_bytes, **mean_bytes}, limits, impossible)


class _GpuTypeChooser:
    """Chooses a GPU type that the job accepts and that could run it: the type it already has;
    else the first type, in the job's own order, with enough unclaimed GPUs; else the least
    crowded type."""

    def __init__(self, view: View, gpus: Mapping[str, int], cordoned: Mapping[JobId, int]) -> None:
        self._view = view
        self._gpus = gpus
        self._cordoned_units = cordoned
        self._kinds: dict[tuple[object, ...], tuple[dict[str, int], Tier]] = {}
        self._claimed: dict[str, float] = defaultdict(float)
        """GPUs of each type: of jobs that hold some, then of jobs that chose earlier."""
        for job in view.jobs.values() if len(gpus) > 1 else ():
            if gpu_type := view.gpu_types.get(job.id):
                self._claimed[gpu_type] = self._claimed_with(job, gpu_type)

    def choose(self, job: Job) -> tuple[str, int, Tier] | None:
        """The type, how many of the job's units fit on all its empty nodes, and the job's tier;
        None if no type fits."""
        key = (job.spec.kind, job.memory_bytes_seen, job.refusal)
        known = self._kinds.get(key)
        if known is None or job.id in self._cordoned_units:
            known = (self._rooms_by_type(job), tier_of(job))
            if job.id not in self._cordoned_units:
                self._kinds[key] = known
        rooms, tier = known
        if not rooms:
            return None
        had = self._view.gpu_types.get(job.id)
        if had in rooms:
            return had, rooms[had], tier
        if len(self._gpus) < 2:
            ((gpu_type, room),) = rooms.items()
            return gpu_type, room, tier
        claims = {gpu_type: self._claimed_with(job, gpu_type) for gpu_type in rooms}
        crowd = {gpu_type: n / self._gpus.get(gpu_type, 1) for gpu_type, n in claims.items()}
        least = min(rooms, key=lambda gpu_type: crowd[gpu_type])
        chosen = next((gpu_type for gpu_type in rooms if crowd[gpu_type] <= 1), least)
        self._claimed[chosen] = claims[chosen]
        return chosen, rooms[chosen], tier

    def _rooms_by_type(self, job: Job) -> dict[str, int]:
        """How many of the job's units an empty cluster holds, by each GPU type that could run the
        job, in the job's own order. Other jobs may not use what the job holds under a cordon."""
        spec, view = job.spec, self._view
        types = spec.gpu_types or sorted(self._gpus)
        types = [each for each in types if each in self._gpus] if spec.uses_gpus else [""]
        rooms = {each: n_fitting(view.empty, demand_of(job, each)) for each in types}
        if (had := view.gpu_types.get(job.id)) in rooms:
            rooms[had] += self._cordoned_units.get(job.id, 0)
        return {each: room for each, room in rooms.items() if room >= spec.min_workers}

    def _claimed_with(self, job: Job, gpu_type: str) -> float:
        """The GPUs that are claimed if the job gets this type."""
        each = demand_of(job, gpu_type).n_gpus(self._view.empty.card_bytes)
        return self._claimed[gpu_type] + job.spec.min_workers * each
