"""A policy may be foreign code: its targets are checked."""

from collections.abc import Sequence

import pytest

from rota.core.model.job import Job, JobId
from rota.core.scheduling.policy_api import BadTargetsError, Budget, Targets, ask
from tests.support.builders import Lab, cluster, job


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
        ({JobId("a"): -1}, "the policy gave a -1 workers, not 0 or 1..1"),
        ({JobId("a"): 1.5}, "the policy gave a 1.5 workers, not 0 or 1..1"),
        ({JobId("a"): True}, "the policy gave a True workers, not 0 or 1..1"),
        ({JobId("a"): 2}, "the policy gave a 2 workers, not 0 or 1..1"),
        ({JobId("b"): 1}, "the policy sized an unknown job: 'b'"),
        (None, "the policy returned None"),
        (ZeroDivisionError("oh"), "the policy raised ZeroDivisionError: oh"),
        (SystemExit(), "the policy raised SystemExit$"),
        (SystemExit(3), "the policy raised SystemExit: 3"),
        (ValueError("x" * 10**6), "the policy raised ValueError: x{197}[.]{3}$"),
        (["\x1b" * 10**6], "x1b.{1,60}$"),
    ],
)
def test_bad_targets_are_reported(answer: object, complaint: str):
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    with pytest.raises(BadTargetsError, match=complaint):
        ask(Answers(answer), [lab.job("a")], budget=Budget(1.0), now=0.0)


def test_a_policy_that_overspends_is_reported():
    lab = Lab(cluster("1x2"))
    lab.submit(job("a"), job("b"))
    answer = {JobId("a"): 1, JobId("b"): 1}
    with pytest.raises(BadTargetsError, match="the policy spent 2 GPUs of 1"):
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
    assert lab.decide().violations == ("the policy raised SystemExit: 0",)
