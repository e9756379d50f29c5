"""When those who wait will be done: the kernel run ahead, now and then, beside the daemon's work.

A forecast is made when somebody asks and the last one is older than the newest round. It looks at
so many jobs, rounds taken together, and no further: whoever stands behind that has no end that
could be told. It runs in a thread of its own, and rests ten times as long as it took.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from rota.core.forecast import Expected, Horizon, Situation, forecast
from rota.core.model import JobId, Queued
from rota.daemon.shell import Shell
from rota.engines.foreseen import foreseen

MOST_LOOKS = 40_000
"""At jobs, in all rounds of a forecast."""
FEWEST_ROUNDS = 20
"""A forecast of fewer rounds would tell of next to nobody."""
REST_FACTOR = 10.0
OLD_S = 30.0
PATIENCE_S = 0.05
"""How long somebody who asks waits for a forecast that is under way."""


class Foresight:
    """`expected` is what the newest forecast says."""

    def __init__(self, shell: Shell, clock: Callable[[], float]) -> None:
        self._shell = shell
        self._clock = clock
        self.expected: Mapping[JobId, Expected] = {}
        self._round = -1
        self._made_s = 0.0
        self._rests_until_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def look(self) -> None:
        """Bring the forecast up to date if that is cheap; not later than after a moment."""
        if self._task is None and self._is_due():
            self._task = self._shell.tasks.spawn(self._forecast(), what="a forecast")
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PATIENCE_S)

    def _is_due(self) -> bool:
        shell, now = self._shell, asyncio.get_running_loop().time()
        if shell.trouble or now < self._rests_until_s or self.is_crowded:
            return False
        is_old = shell.rounds.count != self._round or now - self._made_s > OLD_S
        return is_old and any(isinstance(job.phase, Queued) for job in shell.kernel.jobs.values())

    @property
    def is_crowded(self) -> bool:
        """Whether there are too many jobs to look ahead."""
        return not self._n_rounds()

    def _n_rounds(self) -> int:
        """How many rounds a forecast may have; 0 if it is not worth beginning."""
        n_rounds = MOST_LOOKS // max(1, len(self._shell.kernel.jobs))
        return n_rounds if n_rounds >= FEWEST_ROUNDS else 0

    async def _forecast(self) -> None:
        began_s = asyncio.get_running_loop().time()
        self._round = self._shell.rounds.count
        try:
            self.expected = await asyncio.to_thread(
                forecast,
                self._situation(),
                self._shell.policy,
                engine_of=foreseen,
                now=self._clock(),
                horizon=Horizon(most_rounds=self._n_rounds()),
            )
        except Exception:
            # It is no reason to fail for anything else, and what was foreseen is old.
            self.expected = {}
            raise
        finally:
            self._task = None
            self._made_s = asyncio.get_running_loop().time()
            self._rests_until_s = self._made_s + REST_FACTOR * (self._made_s - began_s)

    def _situation(self) -> Situation:
        kernel = self._shell.kernel
        jobs = tuple(kernel.jobs.values())
        ends = kernel.outcomes
        needed = {each: ends[each] for job in jobs for each in job.spec.after if each in ends}
        return Situation(jobs, tuple(kernel.nodes.values()), kernel.rules, needed)
