"""When to decide: as soon as something changed, but never so often that deciding is all we do."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rota.core.explain import Answers
from rota.core.kernel import Kernel
from rota.core.plan import Plan
from rota.core.policy import Policy
from rota.core.round import decide
from rota.core.view import View

PAUSE_S = 0.005
PAUSE_FACTOR = 3.0
"""A round is followed by a pause of so many times its own length."""


class Decides(Protocol):
    """The shell, as rounds see it."""

    policy: Policy
    kernel: Kernel

    @property
    def trouble(self) -> str: ...

    def view(self) -> View: ...

    def commit(self, plan: Plan) -> None: ...


class Rounds:
    """`newest` is what the last round has to say, for those who ask why."""

    def __init__(self, shell: Decides, *, interval_s: float) -> None:
        self._shell = shell
        self._interval_s = interval_s
        self._wanted = asyncio.Event()
        self.newest: Answers | None = None
        self.count = 0
        self.last_s = 0.0
        self._is_paused = False

    def pause(self) -> None:
        """Decide nothing any more."""
        self._is_paused = True

    def look(self) -> None:
        """Something may have changed."""
        if self._shell.kernel.wants_round:
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
            await asyncio.sleep(max(PAUSE_S, PAUSE_FACTOR * self.last_s, self._interval_s))

    def _may_decide(self) -> bool:
        shell = self._shell
        return not self._is_paused and not shell.trouble and shell.kernel.wants_round

    async def _round(self) -> None:
        shell = self._shell
        kernel, view = shell.kernel, shell.view()
        plan = await asyncio.to_thread(decide, view, shell.policy)
        if shell.kernel is not kernel or shell.trouble or self._is_paused:
            # The store failed meanwhile, and with it what this plan was made from.
            return
        self.newest = Answers(view, plan)
        self.count += 1
        shell.commit(plan)
