"""Runs scheduling rounds: soon after a change, with pauses so that rounds do not use all CPU.

A policy may be a user's own code, and may not return. Python cannot end its thread, so no other
round starts before it returns: at most one thread of rounds hangs. The last plan stays, and events
and requests are served. The thread does not delay the end of the process. A policy that raises or
returns a bad plan changes nothing, either; `stall` says so until a round succeeds.

A round may also fail by one job alone, which must not stop all others. So after a failure each job
is decided alone. If some of them fail and the others together do not, these jobs are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol

import structlog

from rota.core.explain.explain import WaitExplainer
from rota.core.kernel.kernel import Kernel
from rota.core.model.job import Job, JobId
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import View
from rota.errors import internal_error_message
from rota.tasks import in_thread

log = structlog.get_logger()

PAUSE_S = 0.005
PAUSE_FACTOR = 3.0
"""A pause after a round is this many times as long as the round."""
PAUSE_MAX_S = 60.0
"""The longest pause, unless the setting `round_interval` is longer."""
STALL_S = 60.0
"""A round that takes longer than this is reported. The largest clusters need a tenth of it."""


class SchedulingContext(Protocol):
    """The part of the controller that a round uses."""

    policy: Policy
    kernel: Kernel

    @property
    def trouble(self) -> str: ...

    def view(self) -> View: ...

    def commit(self, plan: Plan) -> None: ...

    def hold_after_error(self, job_id: JobId, reason: str) -> None: ...


class SchedulingLoop:
    """`newest` explains the decisions of the last round."""

    def __init__(self, controller: SchedulingContext, *, interval_s: float) -> None:
        self._controller = controller
        self._interval_s = interval_s
        self._wanted = asyncio.Event()
        self.newest: WaitExplainer | None = None
        self.count = 0
        self.last_s = 0.0
        self.stall = ""
        """Why jobs do not start: the current round does not end, or the policy failed in the last
        round. Otherwise empty."""
        self._is_paused = False
        self._searched: frozenset[JobId] = frozenset()
        """The jobs that were searched last for the cause of a failure: a search costs one decision
        for each job."""

    def pause(self) -> None:
        """Run no more rounds."""
        self._is_paused = True

    def wake(self) -> None:
        """Run a round if the kernel wants one."""
        if self._controller.kernel.wants_round:
            self._wanted.set()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            if self._may_decide():
                began = loop.time()
                await self._round()
                self.last_s = loop.time() - began
            pause_s = min(PAUSE_MAX_S, PAUSE_FACTOR * self.last_s)
            await asyncio.sleep(max(PAUSE_S, pause_s, self._interval_s))

    def _may_decide(self) -> bool:
        controller = self._controller
        return not self._is_paused and not controller.trouble and controller.kernel.wants_round

    async def _round(self) -> None:
        controller = self._controller
        kernel, view = controller.kernel, controller.view()
        plan = await self._decide(view, controller.policy)
        if controller.kernel is not kernel or controller.trouble or self._is_paused:
            # The plan belongs to a kernel that was discarded, or rounds were paused.
            return
        self.newest = WaitExplainer(view, plan)
        self.count += 1
        controller.commit(plan)
        if plan.violations:
            await self._hold_culprits(view)

    async def _hold_culprits(self, view: View) -> None:
        """Hold the jobs that alone make a round fail."""
        job_ids = frozenset(job.id for job in view.jobs)
        if job_ids == self._searched:
            return
        self._searched = job_ids
        controller = self._controller
        kernel, policy = controller.kernel, controller.policy
        found = await in_thread(partial(find_culprits, view, policy))
        if controller.kernel is kernel and not controller.trouble:
            for job_id, reason in found.items():
                controller.hold_after_error(job_id, reason)

    async def _decide(self, view: View, policy: Policy) -> Plan:
        """Decide in a thread. Report a decision that takes too long, and wait for it."""
        name = type(policy).__name__
        deciding = asyncio.ensure_future(in_thread(lambda: _decide_safely(view, policy)))
        is_late = False
        try:
            await asyncio.wait({deciding}, timeout=STALL_S)
            if not deciding.done():
                is_late = True
                log.error("scheduling round does not end", policy=name, seconds=STALL_S)
                self.stall = (
                    f"policy {name} has not returned for {STALL_S:g} s; running jobs continue, no"
                    " other job starts; restart the daemon, with another policy if it happens again"
                )
            plan = await deciding
        finally:
            deciding.cancel()
        if is_late:
            log.info("scheduling round ended late", policy=name)
        self.stall = _failure(name, plan)
        return plan


def _decide_safely(view: View, policy: Policy) -> Plan:
    """Decide. The last plan stays if the decision raises, or the policy raises an exception that
    ends programs."""
    try:
        return decide(view, policy)
    except KeyboardInterrupt:
        violation = "the policy raised KeyboardInterrupt"
    except Exception as error:
        log.exception("scheduling round failed")
        violation = f"the round failed: {internal_error_message(error)}"
    return Plan(view.planned, view.gpu_types, violations=(violation,))


def find_culprits(view: View, policy: Policy) -> Mapping[JobId, str]:
    """The jobs that make a decision about themselves alone fail, with the failure; none if the
    decision about all others fails, too: then the jobs are not the cause."""
    failed = {
        job.id: plan.violations[0]
        for job in view.jobs
        if (plan := _decide_safely(_of_jobs(view, [job]), policy)).violations
    }
    others = [job for job in view.jobs if job.id not in failed]
    if not failed or not others or _decide_safely(_of_jobs(view, others), policy).violations:
        return {}
    return failed


def _of_jobs(view: View, jobs: Iterable[Job]) -> View:
    """The view of these jobs. The GPUs of other jobs stay occupied."""
    jobs = tuple(jobs)
    ids = {job.id for job in jobs}
    return replace(
        view,
        jobs=jobs,
        planned={job_id: held for job_id, held in view.planned.items() if job_id in ids},
        gpu_types={job_id: kind for job_id, kind in view.gpu_types.items() if job_id in ids},
    )


def _failure(name: str, plan: Plan) -> str:
    """Why the plan was rejected; empty if it was not."""
    if not plan.violations:
        return ""
    return (
        f"policy {name} made no valid plan: {plan.violations[0]}; running jobs continue, no other"
        " job starts; correct the policy, or choose another one with 'rota policy set'"
    )
