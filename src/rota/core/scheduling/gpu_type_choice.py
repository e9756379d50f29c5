"""Chooses one GPU type for each job that accepts several.

A job never spans GPU types, so the first step of a round gives each job one type before the policy
sizes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.model.job import Job
from rota.core.placement.cordons import CordonedSlots
from rota.core.placement.worker_demand import Demand, demand_of
from rota.core.scheduling.view import View


class GpuTypeChooser:
    """Chooses a GPU type that the job accepts and that could run it: the type it already has;
    else the first type, in the job's own order, with enough unclaimed GPUs; else the least
    crowded type."""

    def __init__(self, view: View, gpus: Mapping[str, int], cordoned: CordonedSlots) -> None:
        self._gpus = gpus
        self._cordoned_slots = cordoned.slots
        self._card_bytes = view.empty.card_bytes
        self._planned = view.gpu_types
        self._empty = view.empty
        self._fits_by_demand: dict[tuple[object, ...], list[tuple[str, int]]] = {}
        self._asked = dict.fromkeys(self._gpus, 0.0)
        """Claimed GPUs of each type: by jobs that hold some, then by jobs that chose earlier."""
        for job in view.jobs if len(self._gpus) > 1 else ():
            gpu_type = self._planned.get(job.id)
            if gpu_type in self._asked:
                self._asked[gpu_type] += self._need(job, gpu_type)

    def choose(self, job: Job) -> tuple[str, int] | None:
        """The type, and how many of the job's workers fit on all its empty nodes; None if no type
        fits."""
        rooms = self._fits_by_type(job)
        if own := self._cordoned_slots.get(job.id):
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

    def _fits_by_type(self, job: Job) -> list[tuple[str, int]]:
        """How many of the job's workers an empty cluster holds, by GPU type."""
        spec = job.spec
        amounts = (spec.gpus, spec.share, spec.cpus, spec.memory_bytes, job.memory_bytes_seen)
        excluded_nodes = job.refusal.nodes if job.refusal else ()
        kind = (spec.gpu_types, spec.node_labels, spec.tolerations, amounts, excluded_nodes)
        rooms = self._fits_by_demand.get(kind)
        if rooms is None:
            types = spec.gpu_types or tuple(sorted(self._gpus))
            types = tuple(t for t in types if t in self._gpus) if spec.uses_gpus else ("",)
            rooms = [(t, self._n_fitting(demand_of(job, t))) for t in types]
            self._fits_by_demand[kind] = rooms
        return rooms

    def _n_fitting(self, demand: Demand) -> int:
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
