"""Decides in which steps the workers vote: in the same steps, and in as few as possible.

A vote costs a collective. So each vote also decides in which step the next one is held: about
`EVERY_S` later for the slowest worker. The result of a vote is the same in all workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from rota_trainer.elastic.process_group import ElasticProcessGroup, Vote

EVERY_S = 0.4
MOST_STEPS = 100
NO_REQUESTS: Sequence[int] = (-1, 0, 0)


class VoteSchedule:
    """The votes of one generation. The first step has a vote."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.is_held = False
        """Whether this step has a vote."""
        self.own = NO_REQUESTS
        """The requests of this worker in its last vote."""
        self._vote: Vote | None = None
        self._next_step = 0
        self._n_steps = 1
        """This worker's proposal for the number of steps until the next vote."""
        self._last: tuple[int, float] | None = None
        """The step and the time of the last vote."""

    @property
    def is_open(self) -> bool:
        """Whether this worker has still to vote in this step."""
        return self.is_held and self._vote is None

    def begin_step(self, step: int) -> None:
        self._vote = None
        self.is_held = step >= self._next_step

    def begin(self) -> None:
        """Begin an extra vote outside of the schedule; all workers must do the same."""
        self._vote, self.is_held = None, True

    def cast(self, group: ElasticProcessGroup, requests: Sequence[int]) -> None:
        """Vote, unless this worker has voted in this step."""
        if self._vote is None:
            self.own = requests
            self._vote = group.vote([*requests, self._n_steps])

    def count(self, step: int) -> list[int]:
        """Wait for the result: the minimum of each request. `step` is the number of finished
        steps."""
        assert self._vote is not None
        *requests, n_steps = self._vote.result()
        now_s = self._clock()
        if self._last is not None and step > self._last[0]:
            pace_s = (now_s - self._last[1]) / (step - self._last[0])
            self._n_steps = max(1, min(MOST_STEPS, int(EVERY_S / max(pace_s, 1e-9))))
        self._last = (step, now_s)
        self._next_step = step + n_steps - 1
        return requests
