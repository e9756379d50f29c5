"""Why a pod is not made, from what was said of it."""

import pytest

from rota.engines.kubernetes.inquiries import trouble_in
from tests.unit.engines.kubernetes.objects import Object


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
        ("FailedCreatePodSandBox", "its node cannot make a place for it"),
    ],
)
def test_what_keeps_a_pod_from_being_made(reason: str, words: str) -> None:
    trouble = trouble_in([said("Scheduled", "01", kind="Normal"), said(reason, "02")])
    assert trouble is not None
    assert trouble.words.startswith(words)
    assert trouble.hint
    assert not trouble.is_race


def test_an_image_that_is_being_pulled_is_no_trouble_whatever_came_before() -> None:
    pulls = said("Pulling", "05", kind="Normal")
    assert trouble_in([pulls, said("FailedMount", "03")]) is None
    assert trouble_in([said("FailedMount", "05"), pulls]) is None
    assert trouble_in([]) is None


def test_what_is_said_again_and_again_counts_by_the_last_time() -> None:
    again = {"lastObservedTime": "2026-11-16T08:00:09.123456Z"}
    mount = said("FailedMount", "01", series=again)
    assert trouble_in([mount, said("Scheduled", "05", kind="Normal")]) is not None


def test_moments_may_be_missing() -> None:
    assert trouble_in([{"reason": "FailedMount", "lastTimestamp": None}]) is not None
