"""The first step of a round: divides the GPUs into pools of jobs.

Currently there is one pool for each GPU type and priority, and a higher priority is sized before a
lower one. Fair shares of projects and users will be part of this step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from rota.core.explain.reasons import Impossible, Reason, describe_request
from rota.core.model.job import Job, JobId
from rota.core.placement.cordons import CordonedSlots, cordoned_slots, is_size_frozen
from rota.core.scheduling.gpu_type_choice import GpuTypeChooser
from rota.core.scheduling.view import View


@dataclass(frozen=True, slots=True)
class Pool:
    """The jobs that one call of the policy sizes together."""

    gpu_type: str
    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """The pools in the order in which they are sized, and the GPUs of each type."""

    pools: tuple[Pool, ...]
    gpus: Mapping[str, int]
    card_bytes: Mapping[str, int]
    """The mean memory of a type's GPUs, so that its budget covers all their memory."""
    impossible: Mapping[JobId, Reason]
    """Jobs that the current nodes could not run even if they were empty."""
    limits: Mapping[JobId, int]
    """The largest size of jobs that the nodes could not run at their maximum."""


def divide(view: View) -> Division:
    """Sort the jobs of a view into pools, in the order in which the policy sizes them."""
    cordoned = cordoned_slots(view)
    gpus, card_bytes = _gpu_totals(view, cordoned)
    pools: dict[tuple[float, str], list[Job]] = {}
    impossible: dict[JobId, Reason] = {}
    limits: dict[JobId, int] = {}
    chooser = GpuTypeChooser(view, gpus, cordoned)
    jobs = view.jobs if len(gpus) < 2 else sorted(view.jobs, key=lambda job: -job.spec.priority)
    for job in jobs:
        chosen = chooser.choose(job)
        if chosen is None:
            impossible[job.id] = Impossible(f"requests {describe_request(job)}")
            continue
        gpu_type, room = chosen
        turn: float = -job.spec.priority
        if job.id in cordoned.slots and is_size_frozen(job, view.planned[job.id], nodes=view.nodes):
            room = len(view.planned[job.id])
            if cordoned.slots[job.id] == room:
                # No other job can use these GPUs, so the job comes first.
                turn = -math.inf
        if room < job.spec.max_workers:
            limits[job.id] = room
        pools.setdefault((turn, gpu_type), []).append(job)
    ordered = tuple(Pool(key[1], tuple(pools[key])) for key in sorted(pools))
    return Division(ordered, gpus, card_bytes, impossible, limits)


def _gpu_totals(view: View, cordoned: CordonedSlots) -> tuple[dict[str, int], dict[str, int]]:
    """The number and mean memory of GPUs of each type: on open nodes, plus GPUs that jobs hold on
    cordoned nodes."""
    gpus, memory_bytes = dict(view.empty.gpus), dict(view.empty.memory_bytes)
    for gpu_type, cards in cordoned.cards.items():
        gpus[gpu_type] = gpus.get(gpu_type, 0) + len(cards)
        memory_bytes[gpu_type] = memory_bytes.get(gpu_type, 0) + sum(cards.values())
    return gpus, {gpu_type: memory_bytes[gpu_type] // n_gpus for gpu_type, n_gpus in gpus.items()}
