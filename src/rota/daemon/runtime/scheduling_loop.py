"""Runs scheduling rounds: soon after a change, with pauses so that rounds do not use all CPU.

A policy may be a user's own code, and may not return. Python cannot end its thread, so no other
round starts before it returns: at most one thread of rounds hangs. The last plan stays, and events
and requests are served. The thread does not delay the end of the process. A policy that raises or
returns a bad plan changes nothing, either; `stall` says so until a round succeeds.

A round may also fail by one job alone, which must not stop all others. So after a failure each job
is decided alone. If some of them fail and the others together do not, these jobs are held.

A short round of a policy that belongs to rota needs no thread: it runs between an event and the
write of its effects. A job that fits then starts with the write that submits it.
"""

from __future__ import annotations

import asyncio
import time
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
from rota.policies.registry import is_built_in
from rota.thread_pools import DECISIONS

log = structlog.get_logger()

PAUSE_S = 0.005
PAUSE_FACTOR = 3.0
"""A pause after a round is this many times as long as the CPU time of the round, and at least as
long as the round."""
SHORT_ROUND_S = 0.002
SHORT_ROUND_JOBS = 100
"""The next round is short if the last one was, and if there are at most so many jobs."""
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
        self._cpu_s = 0.0
        """CPU time of the last round."""
        self.is_busy = True
        """Whether a round runs or is due, or the pause after a round."""
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
            self.is_busy = self._wanted.is_set()
            await self._wanted.wait()
            self._wanted.clear()
            self.is_busy = True
            if self._may_decide():
                began = loop.time()
                await self._round()
                self.last_s = loop.time() - began
            pause_s = min(PAUSE_MAX_S, max(PAUSE_FACTOR * self._cpu_s, self.last_s))
            await asyncio.sleep(max(PAUSE_S, pause_s, self._interval_s))

    def short_round(self) -> Plan | None:
        """Run a round now, if one is wanted and short, and return its plan. The pause after it
        begins now."""
        controller = self._controller
        is_short = (
            not self.is_busy
            and self._cpu_s <= SHORT_ROUND_S
            and len(controller.kernel.jobs) <= SHORT_ROUND_JOBS
            and is_built_in(controller.policy)
        )
        if not (is_short and self._may_decide()):
            return None
        self.is_busy = True
        self._wanted.set()
        began, began_cpu_s = time.monotonic(), time.thread_time()
        view = controller.view()
        plan = _decide_safely(view, controller.policy)
        self._cpu_s = time.thread_time() - began_cpu_s
        self.last_s = time.monotonic() - began
        if plan.violations:
            # The next round of the loop tells why, and searches the cause.
            controller.kernel.want_round()
            return None
        self.stall = ""
        self._keep(view, plan)
        return plan

    def _may_decide(self) -> bool:
        controller = self._controller
        return not self._is_paused and not controller.trouble and controller.kernel.wants_round

    async def _round(self) -> None:
        controller = self._controller
        began_cpu_s = time.thread_time()
        kernel, view = controller.kernel, controller.view()
        view_s = time.thread_time() - began_cpu_s
        plan, decide_s = await self._decide(view, controller.policy)
        self._cpu_s = view_s + decide_s
        if controller.kernel is not kernel or controller.trouble or self._is_paused:
            # The plan belongs to a kernel that was discarded, or rounds were paused.
            return
        self._keep(view, plan)
        controller.commit(plan)
        if plan.violations:
            await self._hold_culprits(view)

    async def _hold_culprits(self, view: View) -> None:
        """Hold the jobs that alone make a round fail."""
        job_ids = frozenset(view.jobs)
        if job_ids == self._searched:
            return
        self._searched = job_ids
        controller = self._controller
        kernel, policy = controller.kernel, controller.policy
        found = await DECISIONS.run(partial(find_culprits, view, policy))
        if controller.kernel is kernel and not controller.trouble:
            for job_id, reason in found.items():
                controller.hold_after_error(job_id, reason)

    def _keep(self, view: View, plan: Plan) -> None:
        self.newest = WaitExplainer(view, plan)
        self.count += 1

    async def _decide(self, view: View, policy: Policy) -> tuple[Plan, float]:
        """Decide in a thread. Report a decision that takes too long, and wait for it. Also return
        the CPU time of the thread."""
        name = type(policy).__name__
        deciding = asyncio.ensure_future(DECISIONS.run(lambda: _decide_timed(view, policy)))
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
            plan, cpu_s = await deciding
        finally:
            deciding.cancel()
        if is_late:
            log.info("scheduling round ended late", policy=name)
        self.stall = _failure(name, plan)
        return plan, cpu_s


def _decide_timed(view: View, policy: Policy) -> tuple[Plan, float]:
    began_cpu_s = time.thread_time()
    plan = _decide_safely(view, policy)
    return plan, time.thread_time() - began_cpu_s


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
        for job in view.jobs.values()
        if (plan := _decide_safely(_of_jobs(view, [job]), policy)).violations
    }
    others = [job for job in view.jobs.values() if job.id not in failed]
    if not failed or not others or _decide_safely(_of_jobs(view, others), policy).violations:
        return {}
    return failed


def _of_jobs(view: View, jobs: Iterable[Job]) -> View:
    """The view of these jobs. The GPUs of other jobs stay occupied."""
    chosen = {job.id: job for job in jobs}
    return replace(
        view,
        jobs=chosen,
        planned={job_id: held for job_id, held in view.planned.items() if job_id in chosen},
        gpu_types={job_id: kind for job_id, kind in view.gpu_types.items() if job_id in chosen},
    )


def _failure(name: str, plan: Plan) -> str:
    """Why the plan was rejected; empty if it was not."""
    if not plan.violations:
        return ""
    return (
        f"policy {name} made no valid plan: {plan.violations[0]}; running jobs continue, no other"
        " job starts; correct the policy, or choose another one with 'rota policy set'"
    )
