"""Start problems from the events of a pod."""

import pytest

from rota.engines.kubernetes.pods.start_problems import newest_problem
from tests.support.kube_objects import Object


def said(reason: str, at: str, *, kind: str = "Warning", **more: object) -> Object:
    return {
        "reason": reason,
        "type": kind,
        "message": f"{reason} was said",
        "lastTimestamp": f"2026-11-16T08:00:{at}Z",
        **more,
    }


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("FailedMount", "its volume cannot be mounted: FailedMount was said"),
        ("FailedAttachVolume", "its volume cannot be attached to its node"),
        ("FailedCreatePodSandBox", "its node cannot create its pod sandbox"),
    ],
)
def test_problems_from_events(reason: str, words: str) -> None:
    problem = newest_problem([said("Scheduled", "01", kind="Normal"), said(reason, "02")])
    assert problem is not None
    assert problem.message.startswith(words)
    assert problem.hint
    assert not problem.is_race


def test_a_later_normal_event_clears_the_problem() -> None:
    pulls = said("Pulling", "05", kind="Normal")
    assert newest_problem([pulls, said("FailedMount", "03")]) is None
    assert newest_problem([said("FailedMount", "05"), pulls]) is None
    assert newest_problem([]) is None


def test_a_repeated_event_counts_by_its_last_time() -> None:
    again = {"lastObservedTime": "2026-11-16T08:00:09.123456Z"}
    mount = said("FailedMount", "01", series=again)
    assert newest_problem([mount, said("Scheduled", "05", kind="Normal")]) is not None


def test_events_without_times() -> None:
    assert newest_problem([{"reason": "FailedMount", "lastTimestamp": None}]) is not None
