"""The content of a TrainingJob object and its status."""

from __future__ import annotations

import json

import pytest

from rota.core.model.job import JobId
from rota.operator.spec_parser import user_of
from rota.store.kubernetes.crd_codec import StatusDetails, body_of, rfc3339, status_of
from tests.support.builders import Lab, cluster, job


def test_the_real_end_replaces_the_expected_finish() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    expected = StatusDetails(finish_s=lab.now + 1000)
    status = status_of(lab.job("a"), expected, accepted="{}")
    assert status["expectedFinish"] == rfc3339(lab.now + 1000)
    lab.wait(10)
    lab.exited("a")
    over = lab.store.job(JobId("a"))
    assert over is not None
    assert status_of(over, expected, accepted="{}")["expectedFinish"] == rfc3339(lab.now)


@pytest.mark.parametrize("user", ["ann", "ann.b", "ann@lab.example", "sa.team-a.trainer"])
def test_the_object_has_the_exact_name_of_its_owner(user: str) -> None:
    """The admission policy compares it with the user who edits or deletes the object."""
    accepted = json.dumps({"user": user, "program": '{"request": {}}'})
    meta = body_of("x", JobId("x"), accepted=accepted, key=b"k")["metadata"]
    assert user_of(meta, default="nobody") == user
    lab = Lab(cluster("1x1"))
    lab.run(job("x", user=user))
    selected = status_of(lab.job("x"), accepted=accepted)["selector"].split(",")
    assert selected == ["rota.dev/job=x", f"rota.dev/user={user}"]
