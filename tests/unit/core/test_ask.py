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
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        ({JobId("a"): -1}, "it gave a -1 workers"),
        ({JobId("a"): 1.5}, "it gave a 1.5 workers"),
        ({JobId("a"): True}, "it gave a True workers"),
        ({JobId("b"): 1}, "it sized 'b', which it was not asked about"),
        (None, "it answered None"),
        (ZeroDivisionError("oh"), "it raised ZeroDivisionError: oh"),
    ],
)
def test_nonsense_is_named(answer: object, complaint: str):
    lab = Lab(cluster("1x1"))
    lab.submit(job("a"))
    with pytest.raises(BadTargetsError, match=complaint):
        ask(Answers(answer), [lab.job("a")], budget=Budget(1.0), now=0.0)
