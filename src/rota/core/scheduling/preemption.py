"""The fourth step of a round: which changes are worth their cost.

A start is always worth it. A job that has only just started is left alone, unless a higher
priority wants GPUs of its type or its node drains. A job grows only if it ends sooner although it
has to stop and start for it. A job gives way only if somebody then uses what it gives up; among
those who could, the ones who lose least do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rota.core.cost import loss_gpu_s, protected_until_s, resize_cost_s
from rota.core.demand import demand_of
from rota.core.growth import is_own_wish
from rota.core.model import Allocation, Job, JobId, Mode, Running, Starting, n_gpus
from rota.core.placement import Placed, Wish, place
from rota.core.plan import Change, Kind, diff
from rota.core.policy import TOLERANCE
from rota.core.progress import remaining_s
from rota.core.reasons import Fragmented, Protected, Reason
from rota.core.view import View

SPARING_TRIES = 3


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is left of a plan after changes that do not pay were dropped from it."""

    wishes: Sequence[Wish]
    placed: Placed
    waits: Mapping[JobId, Reason] = field(default_factory=dict[JobId, Reason])
    wake_at_s: float = math.inf

    @property
    def allocations(self) -> Mapping[JobId, Allocation]:
        return self.placed.allocations


def guard(view: View, wishes: Sequence[Wish], *, placed: Placed) -> Guarded:
    changes = diff(view.planned, placed.allocations)
    if not view.rules.is_guarded or all(change.kind is Kind.START for change in changes):
        return Guarded(wishes, placed)
    case = _Case(view, wishes)
    protected = case.protected(changes)
    kept = protected.keys() | case.unprofitable(changes)
    if kept:
        placed = place(view, case.wishes_with(kept), in_order=True)
    kept, placed = _spare(case, placed, kept=frozenset(kept))
    return Guarded(
        wishes=case.wishes_with(kept),
        placed=placed,
        waits=case.waits(placed, protected),
        wake_at_s=min(protected.values(), default=math.inf),
    )


def _spare(
    case: _Case, placed: Placed, *, kept: frozenset[JobId]
) -> tuple[frozenset[JobId], Placed]:
    """Leave alone victims whose GPUs nobody needs; those who would lose most come first.

    Numbers say how many may be spared, and placing again shows whether that is true: nobody who
    won something may lose it. After that, whoever's slots nobody took simply keeps them.
    """
    for _ in range(SPARING_TRIES):
        spared = kept | case.spared_by_number(placed)
        if spared == kept:
            break
        again = place(case.view, case.wishes_with(spared), in_order=True)
        if case.has_losers(placed, again):
            break
        kept, placed = spared, again
    untouched = case.untouched(placed)
    if not untouched:
        return kept, placed
    allocations = {**placed.allocations, **untouched}
    return kept | untouched.keys(), replace(placed, allocations=allocations)


class _Case:
    """The jobs of one view and what they want, to be asked about changes."""

    def __init__(self, view: View, wishes: Sequence[Wish]) -> None:
        self.view = view
        self._wishes = wishes
        self._jobs = {job.id: job for job in view.jobs}
        self._types = {**view.gpu_types, **{wish.job.id: wish.gpu_type for wish in wishes}}

    def wishes_with(self, kept: Iterable[JobId]) -> list[Wish]:
        """What is wanted if the kept jobs stay as they are; they come first."""
        view, kept = self.view, frozenset(kept)
        as_they_are = [
            Wish(self._jobs[job_id], len(held), view.gpu_types[job_id])
            for job_id, held in view.planned.items()
            if job_id in kept
        ]
        return as_they_are + [wish for wish in self._wishes if wish.job.id not in kept]

    def protected(self, changes: Sequence[Change]) -> dict[JobId, float]:
        """Jobs to be left alone for their minimum run time, and until when."""
        highest: dict[str, int] = {}
        for change in changes:
            if change.kind in (Kind.START, Kind.GROW):
                gpu_type, job = self._types[change.job_id], self._jobs[change.job_id]
                highest[gpu_type] = max(job.spec.priority, highest.get(gpu_type, -(10**9)))
        protected: dict[JobId, float] = {}
        for change in changes:
            job = self._disturbed(change)
            if job is None:
                continue
            until_s = protected_until_s(job, self.view)
            rival = highest.get(self.view.gpu_types[job.id], -(10**9))
            is_outranked = rival > job.spec.priority and change.kind is not Kind.GROW
            if until_s > self.view.now and not is_outranked:
                protected[job.id] = until_s
        return protected

    def unprofitable(self, changes: Iterable[Change]) -> set[JobId]:
        """Jobs that would not end sooner by growing; nor does one that would begin anew."""
        now = self.view.now
        unprofitable: set[JobId] = set()
        for change in changes:
            job = self._disturbed(change) if change.kind is Kind.GROW else None
            if job is None:
                continue
            if job.spec.mode is Mode.FIXED:
                unprofitable.add(job.id)
                continue
            as_it_is_s = remaining_s(job, now, workers=len(change.before))
            grown_s = remaining_s(job, now, workers=len(change.after))
            grown_s += resize_cost_s(job, self.view)
            if math.isfinite(as_it_is_s) and as_it_is_s <= grown_s:
                unprofitable.add(job.id)
        return unprofitable

    def spared_by_number(self, placed: Placed) -> set[JobId]:
        """Victims that what is left over would suffice for, if it were in the right place."""
        spared: set[JobId] = set()
        left: dict[str, float] = {}
        for change in self._victims(placed):
            gpu_type = self.view.gpu_types[change.job_id]
            free = left.setdefault(gpu_type, placed.left.free_gpus(gpu_type))
            freed = n_gpus(change.before) - n_gpus(change.after)
            if 0 < freed <= free + TOLERANCE:
                left[gpu_type] = free - freed
                spared.add(change.job_id)
        return spared

    def untouched(self, placed: Placed) -> dict[JobId, Allocation]:
        """Victims whose slots nobody took, with those slots, which are taken here."""
        untouched: dict[JobId, Allocation] = {}
        for change in self._victims(placed):
            job_id = change.job_id
            had = demand_of(self._jobs[job_id], self.view.gpu_types[job_id])
            has = demand_of(self._jobs[job_id], self._types[job_id])
            placed.left.give(change.after, has)
            if placed.left.try_take_all(change.before, had):
                untouched[job_id] = change.before
            else:
                placed.left.take_all(change.after, has)
        return untouched

    def has_losers(self, placed: Placed, again: Placed) -> bool:
        """Whether somebody who gained workers by the first gains fewer by the second."""
        return any(
            len(again.allocations.get(change.job_id, ())) < len(change.after)
            for change in diff(self.view.planned, placed.allocations)
            if len(change.after) > len(change.before)
        )

    def waits(self, placed: Placed, protected: Mapping[JobId, float]) -> dict[JobId, Reason]:
        soonest: dict[str, JobId] = {}
        for job_id in sorted(protected, key=protected.__getitem__):
            soonest.setdefault(self.view.gpu_types[job_id], job_id)
        waits: dict[JobId, Reason] = {}
        for wish in self._wishes:
            job_id, victim = wish.job.id, soonest.get(wish.gpu_type)
            if job_id in placed.allocations or job_id not in placed.short:
                continue
            if victim is not None:
                waits[job_id] = Protected(victim, protected[victim])
            else:
                waits[job_id] = Fragmented(wish.workers, placed.short[job_id])
        return waits

    def _victims(self, placed: Placed) -> list[Change]:
        """Changes that take something from a job: first from those who are to be left alone for
        a while and those who lose most."""
        changes = diff(self.view.planned, placed.allocations)
        victims = [c for c in changes if c.kind in (Kind.STOP, Kind.SHRINK) and self._disturbed(c)]
        return sorted(victims, key=self._worth_sparing, reverse=True)

    def _worth_sparing(self, change: Change) -> tuple[bool, float]:
        job, view = self._jobs[change.job_id], self.view
        is_fresh = protected_until_s(job, view) > view.now
        if change.after and job.spec.mode.resizes_in_place:
            return is_fresh, resize_cost_s(job, view) * n_gpus(job.allocation)
        return is_fresh, loss_gpu_s(job, view)

    def _disturbed(self, change: Change) -> Job | None:
        """The job, if it runs and could go on as it is, and nothing but others' good wants it to
        change."""
        job = self._jobs.get(change.job_id)
        if job is None or not change.before or not isinstance(job.phase, Running | Starting):
            return None
        before = len(change.before)
        if is_own_wish(job, len(change.after), before=before, now=self.view.now):
            return None
        nodes = (self.view.nodes.get(slot.node) for slot in change.before)
        return job if all(node and not node.is_draining for node in nodes) else None
