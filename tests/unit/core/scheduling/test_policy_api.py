"""A policy may be anybody's code: what it answers is looked at before it is believed."""

from collections.abc import Sequence

import pytest

from rota.core.model import Job, JobId
from rota.core.policy import BadTargetsError, Budget, Targets, ask
from tests.builders import Lab, cluster, job


class Answers:
    """Gives the same answer to every question, or raises it."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        del jobs, budget, now
        if isinstance(self._answer, BaseException):
            raise self._answer
        return self._answer  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({JobId("a"): -1}, "it gave a -1 workers, not 0 or 1..1"),
        ({JobId("a"): 1.5}, "it gave a 1.5 workers, not 0 or 1..1"),
        ({JobId("a"): True}, "it gave a True workers, not 0 or 1..1"),
        ({JobId("a"): 2}, "it gave a 2 workers, not 0 or 1..1"),
        ({JobId("b"): 1}, "it sized 'b', which it was not asked about"),
        (None, "it answered None"),
        (ZeroDivisionError("oh"), "it raised ZeroDivisionError: oh"),
        (SystemExit(), "it raised SystemExit$"),
        (SystemExit(3), "it raised SystemExit: 3"),
        (ValueError("x" * 10**6), "it raised ValueError: x{197}[.]{3}$"),
        (["\x1b" * 10**6], "x1b.{1,60}$"),
    ],
)
def test_nonsense_is_named(answer: object, complaint: str):
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    with pytest.raises(BadTargetsError, match=complaint):
        ask(Answers(answer), [lab.job("a")], budget=Budget(1.0), now=0.0)


def test_a_policy_that_spends_more_than_its_budget_is_named():
    lab = Lab(cluster("1x2"))
    lab.submit(job("a"), job("b"))
    answer = {JobId("a"): 1, JobId("b"): 1}
    with pytest.raises(BadTargetsError, match="it spent 2 GPUs of 1"):
        ask(Answers(answer), [lab.job("a"), lab.job("b")], budget=Budget(1.0), now=0.0)


class Leaves(Answers):
    """Would move jobs between queues, and ends the program instead."""

    def queue_at(self, job: Job, now: float) -> int:
        raise NotImplementedError

    def requeues_at(self, job: Job, now: float) -> float:
        del job, now
        raise SystemExit(0)


def test_a_policy_that_fails_between_queues_leaves_the_last_plan():
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    lab.policy = Leaves({})
    assert lab.decide().violations == ("it raised SystemExit: 0",)
