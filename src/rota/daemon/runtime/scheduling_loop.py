"""Runs scheduling rounds: soon after a change, with pauses so that rounds do not use all CPU.

A policy may be a user's own code, and may not return. Python cannot end its thread, so no other
round starts before it returns: at most one thread of rounds hangs. The last plan stays, and events
and requests are served. The thread does not delay the end of the process. A policy that raises or
returns a bad plan changes nothing, either; `stall` says so until a round succeeds.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import structlog

from rota.core.explain.explain import WaitExplainer
from rota.core.kernel.kernel import Kernel
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Policy
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import View
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
    """Decide. The last plan stays if the policy raises an exception that ends programs."""
    try:
        return decide(view, policy)
    except KeyboardInterrupt:
        violations = ("the policy raised KeyboardInterrupt",)
        return Plan(view.planned, view.gpu_types, violations=violations)


def _failure(name: str, plan: Plan) -> str:
    """Why the plan was rejected; empty if it was not."""
    if not plan.violations:
        return ""
    return (
        f"policy {name} made no valid plan: {plan.violations[0]}; running jobs continue, no other"
        " job starts; correct the policy, or choose another one with 'rota policy set'"
    )
