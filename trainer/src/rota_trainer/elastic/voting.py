"""When workers vote on what to do next: in the same steps, and not in more of them than needed.

To agree costs a collective. So each vote also settles in which step the next one is held, such that
it is about `EVERY_S` later for the worker whose steps take longest: all have the same answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rota_trainer.live.group import Group, Vote

EVERY_S = 0.4
MOST_STEPS = 100
NO_WISHES: Sequence[int] = (-1, 0, 0)


class Ballots:
    """Of one generation. Its first step has a vote."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.is_held = False
        """Whether this step has a vote."""
        self.own = NO_WISHES
        """What this worker wished for in the vote before."""
        self._vote: Vote | None = None
        self._next_step = 0
        self._n_steps = 1
        """After how many steps this worker would hold the next."""
        self._last: tuple[int, float] | None = None
        """The step and the time of the vote before."""

    @property
    def is_open(self) -> bool:
        """Whether this worker has yet to vote in this step."""
        return self.is_held and self._vote is None

    def begin_step(self, step: int) -> None:
        self._vote = None
        self.is_held = step >= self._next_step

    def begin(self) -> None:
        """One that all hold, whatever was agreed on before."""
        self._vote, self.is_held = None, True

    def cast(self, group: Group, wishes: Sequence[int]) -> None:
        """Vote, unless that is done."""
        if self._vote is None:
            self.own = wishes
            self._vote = group.vote([*wishes, self._n_steps])

    def count(self, step: int) -> list[int]:
        """The least of each wish, once all have voted. `step` is how many are done."""
        assert self._vote is not None
        *wishes, n_steps = self._vote.result()
        now_s = self._clock()
        if self._last is not None and step > self._last[0]:
            pace_s = (now_s - self._last[1]) / (step - self._last[0])
            self._n_steps = max(1, min(MOST_STEPS, int(EVERY_S / max(pace_s, 1e-9))))
        self._last = (step, now_s)
        self._next_step = step + n_steps - 1
        return wishes
