"""Workers vote in the same steps, at any speed."""

import itertools
from collections.abc import Sequence
from typing import Any, cast

import pytest

pytest.importorskip("torch", reason="torch is not installed: nothing here trains")

from rota_trainer.elastic.voting import VoteSchedule


class Council:
    """All workers of a group, one after the other: a vote is counted when all have cast theirs."""

    def __init__(self, *steps_s: float) -> None:
        self.steps_s = steps_s
        self.now_s = [0.0 for _ in steps_s]
        self.workers = [VoteSchedule(self._clock(number)) for number in range(len(steps_s))]
        self.cast: list[list[int]] = []

    def _clock(self, number: int) -> Any:
        return lambda: self.now_s[number]

    def vote(self, wishes: list[int]) -> "Council":
        self.cast.append(wishes)
        return self

    def result(self) -> list[int]:
        return [min(each) for each in zip(*self.cast, strict=True)]

    def step(self, step: int, wishes: Sequence[Sequence[int]] = ()) -> list[list[int]]:
        """What each worker heard in it; nothing without a vote."""
        self.cast = []
        for ballots in self.workers:
            ballots.begin_step(step)
        assert len({ballots.is_held for ballots in self.workers}) == 1
        if not self.workers[0].is_held:
            self._pass()
            return []
        for ballots, wish in zip(self.workers, wishes or [(-1, 0)] * 9, strict=False):
            ballots.cast(cast(Any, self), wish)
            assert not ballots.is_open
        self._pass()
        return [ballots.count(step + 1) for ballots in self.workers]

    def _pass(self) -> None:
        self.now_s = [now + step for now, step in zip(self.now_s, self.steps_s, strict=True)]


@pytest.mark.parametrize(
    ("steps_s", "every"), [((0.045, 0.045), 8), ((0.05, 0.09), 4), ((0.5, 0.01), 1), ((1e-6,), 100)]
)
def test_slowest_worker_decides_the_interval(steps_s: tuple[float, ...], every: int) -> None:
    council = Council(*steps_s)
    held = [step for step in range(400) if council.step(step)]
    assert held[:2] == [0, 1]
    assert {after - before for before, after in itertools.pairwise(held[3:])} == {every}


def test_result_is_the_minimum_of_each_request() -> None:
    council = Council(0.05, 0.05)
    for step in range(20):
        heard = council.step(step, [(3, 0), (2, -1)])
        assert heard in ([], [[2, -1], [2, -1]])


def test_extra_vote_at_the_end_of_an_epoch() -> None:
    council = Council(0.01, 0.01)
    for step in range(30):
        council.step(step)
    council.cast = []
    for ballots in council.workers:
        ballots.begin()
        assert ballots.is_open
        ballots.cast(cast(Any, council), (-1, 0))
    assert [ballots.count(30) for ballots in council.workers] == [[-1, 0]] * 2
