"""Forecasts when queued jobs will end: runs a copy of the kernel ahead of time, in a thread.

A forecast starts when a caller wants one and the last one is older than the newest scheduling
round. A forecast simulates a limited number of jobs times rounds; jobs behind that limit have no
expected end. After a forecast, the forecaster rests ten times as long as the forecast took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from rota.core.estimation.forecast import (
    EngineFactory,
    Horizon,
    JobForecast,
    Situation,
    forecast,
)
from rota.core.model.job import Job, JobId, Queued
from rota.daemon.runtime.controller import Controller
from rota.thread_pools import FORECASTS

MAX_JOB_ROUNDS = 40_000
"""Jobs times rounds of one forecast."""
MIN_ROUNDS = 20
"""A forecast of fewer rounds would reach the end of almost no job."""
REST_FACTOR = 10.0
OLD_S = 30.0
MAX_WAIT_S = 0.05
"""How long a caller waits for a forecast that is running."""
MAX_WHAT_IF_WAIT_S = 2.0
"""How long a caller waits for a forecast that includes new jobs."""


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
            self._task = self._controller.tasks.spawn(
                self._timed(self._forecast), what="a forecast"
            )
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=MAX_WAIT_S)

    async def what_if(self, jobs: Sequence[Job]) -> Mapping[JobId, JobForecast]:
        """The forecast of jobs that are not submitted yet; empty if it takes too long. It counts as
        a forecast: only one runs at a time, and the forecaster rests after it."""
        loop, found = asyncio.get_running_loop(), dict[JobId, JobForecast]()
        until_s = loop.time() + MAX_WHAT_IF_WAIT_S
        if self._is_stopped or self.is_crowded:
            return {}
        while self._task is not None or loop.time() < self._rests_until_s:
            left_s = until_s - loop.time()
            if left_s <= 0 or self._rests_until_s > until_s:
                return {}
            if self._task is not None:
                await asyncio.wait({self._task}, timeout=left_s)
            else:
                await asyncio.sleep(self._rests_until_s - loop.time())

        async def work() -> None:
            found.update(await self._simulate(jobs))

        task = self._task = self._controller.tasks.spawn(self._timed(work), what="a forecast")
        await asyncio.wait({task}, timeout=max(0.0, until_s - loop.time()))
        return {job.id: found[job.id] for job in jobs if job.id in found}

    @property
    def _is_stopped(self) -> bool:
        return bool(self._controller.trouble or self._controller.scheduling_loop.stall)

    def _is_due(self) -> bool:
        controller, now = self._controller, asyncio.get_running_loop().time()
        if self._is_stopped or now < self._rests_until_s or self.is_crowded:
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
        self._round = self._controller.scheduling_loop.count
        try:
            self.expected = await self._simulate()
        except Exception:
            # The last forecast is out of date.
            self.expected = {}
            raise
        finally:
            self._made_s = asyncio.get_running_loop().time()

    async def _timed(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run one forecast, and rest after it."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await work()
        finally:
            self._task = None
            self._rests_until_s = loop.time() + REST_FACTOR * (loop.time() - began_s)

    async def _simulate(self, more: Sequence[Job] = ()) -> Mapping[JobId, JobForecast]:
        # In a thread that does not delay the end of the process: the policy may not return.
        return await FORECASTS.run(
            partial(
                forecast,
                self._situation(more),
                self._controller.policy,
                engine_of=self._engine_of,
                now=self._clock(),
                horizon=Horizon(max_rounds=self._n_rounds()),
            )
        )

    def _situation(self, more: Sequence[Job]) -> Situation:
        controller = self._controller
        jobs = (*controller.jobs.values(), *more)
        ends = controller.outcomes
        needed = {
            each: ends[each] for job in jobs for each in job.spec.dependencies if each in ends
        }
        return Situation(jobs, tuple(controller.nodes.values()), controller.rules, needed)
