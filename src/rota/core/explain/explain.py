"""Answers "why does this job wait?" from a view and the plan that was made of it."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from rota.core.divide import wish
from rota.core.misfit import Misfits, at_best
from rota.core.model import Held, Job, JobId, Queued, Starting
from rota.core.plan import Plan
from rota.core.reasons import (
    BacksOff,
    Drained,
    Fragmented,
    Impossible,
    Occupied,
    OnHold,
    Reason,
    Refused,
    SentToASickNode,
    WaitsForARound,
    WaitsForItsTurn,
    WaitsForJobs,
)
from rota.core.refusals import without_lapsed
from rota.core.taints import tolerates
from rota.core.view import View


class Answers:
    """What one round says about every job. Looks at the whole queue once, however many ask."""

    def __init__(self, view: View, plan: Plan) -> None:
        self._view = view
        self._plan = plan

    def why_it_waits(self, job: Job) -> Reason | None:
        """The one dominant reason; None for a job that does not wait."""
        job = without_lapsed(job, self._view.now)
        match job.phase:
            case Held():
                return OnHold()
            case Queued() if job.id in self._plan.allocations:
                return None
            case Queued(not_before_s=until_s, reason=why) if until_s > self._view.now:
                return BacksOff(until_s, why)
            case Queued() if job.id in self._plan.waits:
                return self._for_now(job, self._plan.waits[job.id])
            case Queued() if job.id not in self._seen:
                return WaitsForJobs(job.spec.after) if job.spec.after else WaitsForARound()
            case Queued():
                n_ahead = bisect_left(self._line, _place(job))
                n_running = len(self._plan.allocations)
                return WaitsForItsTurn(wish(job), n_ahead=n_ahead, n_running=n_running)
            case Starting(allocation=slots):
                nodes = [self._view.nodes.get(slot.node) for slot in slots]
                sick = [node for node in nodes if node is not None and node.note]
                return SentToASickNode(sick[0].id, sick[0].note) if sick else None
            case _:
                return None

    def _for_now(self, job: Job, reason: Reason) -> Reason:
        """What cannot be on the nodes as they are may be when they are back."""
        is_for_good = isinstance(reason, Impossible) and self._at_best.of(job.spec) is not None
        if job.refusal and isinstance(reason, Impossible | Fragmented) and not is_for_good:
            return Refused(job.refusal.nodes, job.refusal.why)
        if not isinstance(reason, Impossible) or is_for_good:
            return reason
        nodes = self._view.nodes.values()
        closed = [node for node in nodes if node.is_closed and not node.note]
        words = job.spec.tolerations
        if closed or any(not tolerates(words, node.taints) for node in nodes):
            return Drained()
        return Occupied() if any(node.whole for node in nodes) else reason

    @cached_property
    def _at_best(self) -> Misfits:
        return Misfits([at_best(node) for node in self._view.nodes.values()])

    @cached_property
    def _seen(self) -> frozenset[JobId]:
        return frozenset(job.id for job in self._view.jobs)

    @cached_property
    def _line(self) -> list[tuple[int, float, JobId]]:
        """The places of all who wait, in order."""
        waiting = (job for job in self._view.jobs if job.id not in self._plan.allocations)
        return sorted(_place(job) for job in waiting)


def _place(job: Job) -> tuple[int, float, JobId]:
    return (-job.spec.priority, job.submitted_s, job.id)
