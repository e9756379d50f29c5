"""The third step of a round: a verdict for each job whose size would change.

A start is always worth it. A job below its minimum run time is left alone, unless a job that
outranks it wants GPUs of its type or its node drains. A job grows only if it then finishes sooner,
including the cost of the resize. A job that should stop or shrink yields: it does so only if
another job then uses its GPUs, and the jobs that lose least yield first.

The verdicts depend on sizes only, not on nodes, so they come before the placement and one placement
carries them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import itemgetter

from rota.core.estimation.disruption_cost import loss_gpu_s, resize_cost_s
from rota.core.estimation.remaining_time import remaining_s
from rota.core.explain.reasons import Protected
from rota.core.lifecycle.cordons import is_size_frozen, may_keep_slot
from rota.core.lifecycle.size_caps import is_own_resize
from rota.core.model.allocation import n_gpus
from rota.core.model.job import Job, Running, Starting
from rota.core.model.rank import Rank, rank_of
from rota.core.placement.wish import Wish, demand_of, unit_slots
from rota.core.scheduling.divide import Shares
from rota.core.scheduling.sizing import Sizes
from rota.core.scheduling.view import View


class Verdict(StrEnum):
    """Whether a job changes, with the reason."""

    CHANGE = "the change is worth its cost"
    YIELD = "the job changes if another job needs its slots"
    KEEP_PROTECTED = "the job has not reached its minimum run time"
    KEEP_UNPROFITABLE = "the job would not finish sooner"


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdict on each wish, in the order in which the policy granted the sizes."""

    verdicts: tuple[tuple[Wish, Verdict], ...]
    blocking: dict[str, Protected]
    """By GPU type: the protected job that must be the first to give up GPUs."""
    wake_at_s: float
    """When the first protected job reaches its minimum run time."""


def judge(shares: Shares, sizes: Sizes) -> Judged:
    """Give each job that would change a verdict."""
    view = shares.view
    wishes = list(changes(shares, sizes))
    highest = _highest_gaining(wishes)
    verdicts = tuple(
        (wish, _verdict(wish, view, rival=highest.get(wish.demand.gpu_type))) for wish in wishes
    )
    kept = [wish for wish, verdict in verdicts if verdict is Verdict.KEEP_PROTECTED]
    protected = [(protected_until_s(wish.job, view), wish) for wish in kept]
    protected.sort(key=itemgetter(0), reverse=True)
    blocking = {
        wish.demand.gpu_type: Protected(wish.job.id, until_s)
        for until_s, wish in protected
        if wish.freed_gpus
    }
    return Judged(verdicts, blocking, protected[-1][0] if protected else math.inf)


def wishes_to_place(judged: Judged, view: View) -> list[Wish]:
    """The wishes of jobs that change, in the order of placement: higher tiers first, then the
    hardest to place. If protected jobs block GPUs, not all wishes fit, and the order of the policy
    decides. Jobs that yield follow; the jobs that lose most are spared first."""
    changing = [wish for wish, verdict in judged.verdicts if verdict is Verdict.CHANGE]
    yielding = [wish for wish, verdict in judged.verdicts if verdict is Verdict.YIELD]
    if not judged.blocking:
        changing = by_difficulty(changing, view)
    yielding.sort(key=lambda wish: _worth_sparing(wish, view), reverse=True)
    return changing + [replace(wish, yields=True) for wish in yielding]


def by_difficulty(wishes: Iterable[Wish], view: View) -> list[Wish]:
    """Higher tiers first; then whole GPUs before shares, because they leave no GPU partly used;
    then the wishes that are hardest to place: large units, then many units."""
    card_bytes = view.empty.card_bytes

    def key(wish: Wish) -> tuple[object, ...]:
        demand = wish.demand
        share_bytes = demand.share_bytes(card_bytes.get(demand.gpu_type, 0))
        return wish.rank.tier, -wish.gpus_together, -wish.units * demand.gpus, -share_bytes

    return sorted(wishes, key=key)


def changes(shares: Shares, sizes: Sizes) -> Iterator[Wish]:
    """A wish for each job whose size changes or that must leave its slots."""
    view = shares.view
    nodes = view.nodes.items()
    closed = {key: node for key, node in nodes if node.is_closed or node.missing_gpus}
    stops = {key: 0 for key in view.planned if key in view.jobs and not sizes.targets.get(key)}
    for job_id, units in {**sizes.targets, **stops}.items():
        job, held = view.jobs[job_id], view.planned.get(job_id, ())
        had_type = view.gpu_types.get(job_id, "")
        gpu_type = sizes.gpu_types.get(job_id, had_type)
        leaves = bool(units and held) and had_type != gpu_type
        if closed and units and held and not leaves:
            there = [slot for slot in held if slot.node in closed]
            leaves = not all(may_keep_slot(job, slot, nodes=closed) for slot in there)
            if not leaves and is_size_frozen(job, held, nodes=closed):
                continue
        if leaves or units != job.spec.units_in(held):
            demand, slots = demand_of(job, gpu_type), unit_slots(job, held)
            yield Wish(job, rank_of(job), units, demand, slots, leaves=leaves)


def protected_until_s(job: Job, view: View) -> float:
    """When the job reaches its minimum run time and may be disrupted."""
    if not isinstance(job.phase, Running | Starting):
        return -math.inf
    own = job.spec.min_runtime_s
    return job.phase.since_s + (own if own is not None else view.rules.min_runtime_s)


def _highest_gaining(wishes: Iterable[Wish]) -> dict[str, Rank]:
    """The highest rank that would gain GPUs of each type."""
    highest: dict[str, Rank] = {}
    for wish in wishes:
        gpu_type = wish.demand.gpu_type
        if wish.units > len(wish.held):
            highest[gpu_type] = min(wish.rank, highest.get(gpu_type, wish.rank))
    return highest


def _verdict(wish: Wish, view: View, *, rival: Rank | None) -> Verdict:
    job, before, after = wish.job, len(wish.held), wish.units
    if not _is_disturbed(wish, view):
        return Verdict.CHANGE
    is_outranked = rival is not None and rival.outranks(wish.rank) and after <= before
    if protected_until_s(job, view) > view.now and not is_outranked:
        return Verdict.KEEP_PROTECTED
    if after < before:
        return Verdict.YIELD
    as_it_is_s = remaining_s(job, view.now, workers=before)
    grown_s = remaining_s(job, view.now, workers=after)
    grown_s += resize_cost_s(job, view.rules.restart_cost_s)
    if math.isfinite(as_it_is_s) and as_it_is_s <= grown_s:
        return Verdict.KEEP_UNPROFITABLE
    return Verdict.CHANGE


def _is_disturbed(wish: Wish, view: View) -> bool:
    """Whether the job could continue unchanged and the change serves other jobs only."""
    job, held = wish.job, wish.held
    if not view.rules.is_guarded or not held or wish.leaves:
        return False
    if not isinstance(job.phase, Running | Starting):
        return False
    if is_own_resize(job, wish.units, before=len(held), now=view.now):
        return False
    nodes = (view.nodes.get(slot.node) for slot in held)
    return all(node and not node.is_draining for node in nodes)


def _worth_sparing(wish: Wish, view: View) -> tuple[bool, float]:
    job, restart_s = wish.job, view.rules.restart_cost_s
    is_fresh = protected_until_s(job, view) > view.now
    if wish.units and job.spec.mode.resizes_in_place:
        return is_fresh, resize_cost_s(job, restart_s) * n_gpus(job.allocation)
    return is_fresh, loss_gpu_s(job, restart_s, now=view.now)
