"""The first step of a round: who may spend how much.

For now all belong to one pool of GPUs for each type, in which a higher priority is sized before
a lower one. Projects and people come into this step and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.cordons import Sitters, is_stuck, sitters
from rota.core.demand import Demand, demand_of
from rota.core.model import GIB, Job, JobId
from rota.core.reasons import Impossible, Reason, gpu_noun, plural
from rota.core.view import View


@dataclass(frozen=True, slots=True)
class Pool:
    """The jobs that one call of the policy sizes together."""

    gpu_type: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Pools in the order in which they are sized, and what there is to spend of each type."""

    pools: tuple[Pool, ...]
    gpus: Mapping[str, int]
    card_bytes: Mapping[str, int]
    """The mean size of a type's cards, so that its budget is worth all their memory."""
    impossible: Mapping[JobId, Reason]
    """Jobs that the nodes as they are could not run even if all else were gone."""
    limits: Mapping[JobId, int]
    """Jobs that these nodes could not run at their largest size, and the size they could."""


def divide(view: View) -> Division:
    sitting = sitters(view)
    gpus, card_bytes = _stock(view, sitting)
    pools: dict[tuple[float, str], list[Job]] = {}
    impossible: dict[JobId, Reason] = {}
    limits: dict[JobId, int] = {}
    chooser = _TypeChooser(view, gpus, sitting)
    jobs = view.jobs if len(gpus) < 2 else sorted(view.jobs, key=lambda job: -job.spec.priority)
    for job in jobs:
        chosen = chooser.choose(job)
        if chosen is None:
            impossible[job.id] = Impossible(wish(job))
            continue
        gpu_type, room = chosen
        turn: float = -job.spec.priority
        if job.id in sitting.seats and is_stuck(job, view.planned[job.id], nodes=view.nodes):
            room = len(view.planned[job.id])
            if sitting.seats[job.id] == room:
                # What it holds is of use to nobody else, whatever their priority.
                turn = -math.inf
        if room < job.spec.max_workers:
            limits[job.id] = room
        pools.setdefault((turn, gpu_type), []).append(job)
    ordered = tuple(Pool(key[1], tuple(pools[key])) for key in sorted(pools))
    return Division(ordered, gpus, card_bytes, impossible, limits)


def _stock(view: View, sitting: Sitters) -> tuple[dict[str, int], dict[str, int]]:
    """How many GPUs of each type there are to be had, and how large they are: those of nodes that
    take work, and what is held of those that take nobody else."""
    gpus, memory_bytes = dict(view.empty.gpus), dict(view.empty.memory_bytes)
    for gpu_type, cards in sitting.cards.items():
        gpus[gpu_type] = gpus.get(gpu_type, 0) + len(cards)
        memory_bytes[gpu_type] = memory_bytes.get(gpu_type, 0) + sum(cards.values())
    return gpus, {gpu_type: memory_bytes[gpu_type] // n_gpus for gpu_type, n_gpus in gpus.items()}


class _TypeChooser:
    """Gives each job one of the GPU types that it accepts and could run on: the one it has; else
    the first, in the job's own order, that is not yet spoken for; else the least crowded."""

    def __init__(self, view: View, gpus: Mapping[str, int], sitting: Sitters) -> None:
        self._gpus = gpus
        self._seats = sitting.seats
        self._card_bytes = view.empty.card_bytes
        self._planned = view.gpu_types
        self._empty = view.empty
        self._rooms_by_kind: dict[tuple[object, ...], list[tuple[str, int]]] = {}
        self._asked = dict.fromkeys(self._gpus, 0.0)
        """GPUs of each type that are spoken for: by those who have some, then by those who came
        to choose."""
        for job in view.jobs if len(self._gpus) > 1 else ():
            gpu_type = self._planned.get(job.id)
            if gpu_type in self._asked:
                self._asked[gpu_type] += self._need(job, gpu_type)

    def choose(self, job: Job) -> tuple[str, int] | None:
        """A type, and how many of the job's workers all its nodes hold when they are empty."""
        rooms = self._rooms_for(job)
        if own := self._seats.get(job.id):
            had = self._planned[job.id]
            rooms = [(gpu_type, room + own * (gpu_type == had)) for gpu_type, room in rooms]
        if len(self._gpus) < 2 and rooms:
            return rooms[0] if rooms[0][1] >= job.spec.min_workers else None
        accepted = {gpu_type: room for gpu_type, room in rooms if room >= job.spec.min_workers}
        if not accepted:
            return None
        chosen = self._planned.get(job.id)
        if chosen not in accepted:
            chosen = self._least_crowded(job, list(accepted))
            if chosen in self._asked:
                self._asked[chosen] += self._need(job, chosen)
        return chosen, accepted[chosen]

    def _rooms_for(self, job: Job) -> list[tuple[str, int]]:
        """How many of the job's workers an empty cluster holds, by GPU type."""
        spec = job.spec
        amounts = (spec.gpus, spec.share, spec.cpus, spec.memory_bytes, job.memory_bytes_seen)
        shunned = job.refusal.nodes if job.refusal else ()
        kind = (spec.gpu_types, spec.node_labels, spec.tolerations, amounts, shunned)
        rooms = self._rooms_by_kind.get(kind)
        if rooms is None:
            types = spec.gpu_types or tuple(sorted(self._gpus))
            types = tuple(t for t in types if t in self._gpus) if spec.uses_gpus else ("",)
            rooms = [(t, self._room_for(demand_of(job, t))) for t in types]
            self._rooms_by_kind[kind] = rooms
        return rooms

    def _room_for(self, demand: Demand) -> int:
        return sum(room.fits(demand) for room in self._empty.by_fit(demand))

    def _need(self, job: Job, gpu_type: str) -> float:
        spec = job.spec
        if spec.share is None:
            return spec.min_workers * spec.gpus
        card_bytes = self._card_bytes[gpu_type]
        return spec.min_workers * spec.share.bytes_on(card_bytes) / card_bytes

    def _least_crowded(self, job: Job, accepted: list[str]) -> str:
        def crowd(gpu_type: str) -> float:
            return (self._asked[gpu_type] + self._need(job, gpu_type)) / self._gpus[gpu_type]

        if len(accepted) == 1:
            return accepted[0]
        return next((t for t in accepted if crowd(t) <= 1), min(accepted, key=crowd))


def wish(job: Job) -> str:
    spec = job.spec
    noun = gpu_noun(spec.gpu_types)
    parts = [f"a share of one {noun}" if spec.share else plural(spec.gpus, noun)]
    if not spec.uses_gpus:
        parts = []
    if spec.cpus:
        parts.append(plural(spec.cpus, "CPU"))
    if spec.memory_bytes:
        parts.append(f"{spec.memory_bytes / GIB:g} GiB")
    each = ", ".join(parts)
    if spec.min_workers > 1 or not each:
        workers = plural(spec.min_workers, "worker")
        each = f"{workers} with {each} each" if each else workers
    labels = " and ".join(f"{key}={value}" for key, value in sorted(spec.node_labels))
    return each + (f" on {labels}" if labels else "")
