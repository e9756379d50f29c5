"""Forecasts when queued jobs will end: runs a copy of the kernel ahead of time, in a thread.

A forecast starts when a caller wants one and the last one is older than the newest scheduling
round. A forecast simulates a limited number of jobs times rounds; jobs behind that limit have no
expected end. After a forecast, the forecaster rests ten times as long as the forecast took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial

from rota.core.estimation.forecast import (
    EngineFactory,
    Horizon,
    JobForecast,
    Situation,
    forecast,
)
from rota.core.model.job import JobId, Queued
from rota.daemon.runtime.controller import Controller
from rota.tasks import in_thread

MAX_JOB_ROUNDS = 40_000
"""Jobs times rounds of one forecast."""
MIN_ROUNDS = 20
"""A forecast of fewer rounds would reach the end of almost no job."""
REST_FACTOR = 10.0
OLD_S = 30.0
MAX_WAIT_S = 0.05
"""How long a caller waits for a forecast that is running."""


class Forecaster:
    """`expected` is the result of the newest forecast."""

    def __init__(
        self, controller: Controller, clock: Callable[[], float], *, engine_of: EngineFactory
    ) -> None:
        self._controller = controller
        self._clock = clock
        self._engine_of = engine_of
        self.expected: Mapping[JobId, JobForecast] = {}
        self._round = -1
        self._made_s = 0.0
        self._rests_until_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Start a forecast if one is due, and wait a moment for its end."""
        if self._task is None and self._is_due():
            self._task = self._controller.tasks.spawn(self._forecast(), what="a forecast")
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=MAX_WAIT_S)

    def _is_due(self) -> bool:
        controller, now = self._controller, asyncio.get_running_loop().time()
        is_stopped = bool(controller.trouble or controller.scheduling_loop.stall)
        if is_stopped or now < self._rests_until_s or self.is_crowded:
            return False
        is_old = controller.scheduling_loop.count != self._round or now - self._made_s > OLD_S
        return is_old and any(isinstance(job.phase, Queued) for job in controller.jobs.values())

    @property
    def is_crowded(self) -> bool:
        """Whether there are too many jobs for a forecast."""
        return not self._n_rounds()

    def _n_rounds(self) -> int:
        """How many rounds a forecast may have; 0: too few to start one."""
        n_rounds = MAX_JOB_ROUNDS // max(1, len(self._controller.jobs))
        return n_rounds if n_rounds >= MIN_ROUNDS else 0

    async def _forecast(self) -> None:
        began_s = asyncio.get_running_loop().time()
        self._round = self._controller.scheduling_loop.count
        try:
            # In a thread that does not delay the end of the process: the policy may not return.
            self.expected = await in_thread(
                partial(
                    forecast,
                    self._situation(),
                    self._controller.policy,
                    engine_of=self._engine_of,
                    now=self._clock(),
                    horizon=Horizon(max_rounds=self._n_rounds()),
                )
            )
        except Exception:
            # The last forecast is out of date.
            self.expected = {}
            raise
        finally:
            self._task = None
            self._made_s = asyncio.get_running_loop().time()
            self._rests_until_s = self._made_s + REST_FACTOR * (self._made_s - began_s)

    def _situation(self) -> Situation:
        controller = self._controller
        jobs = tuple(controller.jobs.values())
        ends = controller.outcomes
        needed = {each: ends[each] for job in jobs for each in job.spec.after if each in ends}
        return Situation(jobs, tuple(controller.nodes.values()), controller.rules, needed)
