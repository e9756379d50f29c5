"""Explains why a job waits, from a view and the plan that was made from it."""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property

from rota.core.explain.feasibility import FeasibilityChecker, with_full_capacity
from rota.core.explain.reasons import (
    BacksOff,
    Drained,
    Fragmented,
    Impossible,
    Occupied,
    OnHold,
    Reason,
    RefusedByNodes,
    WaitsForARound,
    WaitsForItsArray,
    WaitsForItsTurn,
    WaitsForJobs,
    WaitsForUnhealthyNode,
    WaitsForUserLimit,
    describe_request,
)
from rota.core.lifecycle.node_refusals import without_expired_refusal
from rota.core.model.job import Held, Job, Queued, Starting
from rota.core.model.node import tolerates
from rota.core.model.rank import Rank, rank_of
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.view import View


class WaitExplainer:
    """Explains the waits of all jobs after one round. It computes the queue order once for all of
    them."""

    def __init__(self, view: View, plan: Plan) -> None:
        self._view = view
        self._plan = plan

    def wait_reason(self, job: Job) -> Reason | None:
        """The main reason why the job waits; None for a job that does not wait."""
        job = without_expired_refusal(job, self._view.now)
        match job.phase:
            case Held():
                return OnHold()
            case Queued(not_before_s=until_s, reason=why) if until_s > self._view.now:
                # Before the next case: a start of this round may have failed already.
                return BacksOff(until_s, why)
            case Queued() if job.id in self._plan.allocations:
                return None
            case Queued() if job.id in self._plan.waits:
                return self._temporary_reason(job, self._plan.waits[job.id])
            case Queued() if job.id in self._view.kept_out:
                return WaitsForItsArray(job.spec.array_limit)
            case Queued() if job.id in self._view.over_limit:
                return WaitsForUserLimit()
            case Queued() if job.id not in self._view.jobs:
                return _dependencies_reason(job)
            case Queued():
                n_ahead = bisect_left(self._queue, rank_of(job))
                n_running = len(self._plan.allocations)
                return WaitsForItsTurn(describe_request(job), n_ahead=n_ahead, n_running=n_running)
            case Starting(allocation=slots):
                nodes = [self._view.nodes.get(slot.node) for slot in slots]
                unhealthy = [node for node in nodes if node is not None and node.note]
                return (
                    WaitsForUnhealthyNode(unhealthy[0].id, unhealthy[0].note) if unhealthy else None
                )
            case _:
                return None

    def _temporary_reason(self, job: Job, reason: Reason) -> Reason:
        """Replace `Impossible` by a temporary reason if the job could run once nodes accept workers
        again, become healthy, or are freed by other workloads."""
        problem = self._at_best.of(job.spec) if isinstance(reason, Impossible) else None
        if problem is not None:
            return Impossible(problem.message)
        if job.refusal and isinstance(reason, Impossible | Fragmented):
            return RefusedByNodes(job.refusal.nodes, job.refusal.why)
        if not isinstance(reason, Impossible):
            return reason
        nodes = self._view.nodes.values()
        closed = [node for node in nodes if node.is_closed and not node.note]
        tolerations = job.spec.tolerations
        if closed or any(not tolerates(tolerations, node.taints) for node in nodes):
            return Drained()
        return Occupied() if any(node.whole for node in nodes) else reason

    @cached_property
    def _at_best(self) -> FeasibilityChecker:
        return FeasibilityChecker([with_full_capacity(node) for node in self._view.nodes.values()])

    @cached_property
    def _queue(self) -> list[Rank]:
        """The ranks of all waiting jobs, in order."""
        planned = self._plan.allocations
        jobs = self._view.jobs.items()
        return sorted(rank_of(job) for job_id, job in jobs if job_id not in planned)


def _dependencies_reason(job: Job) -> Reason:
    spec = job.spec
    if not spec.dependencies:
        return WaitsForARound()
    return WaitsForJobs(spec.after, ended=spec.after_any, failed=spec.after_failed)
