"""What the object of a job says of it."""

from __future__ import annotations

import json

import pytest

from rota.core.model import JobId
from rota.daemon.asked_by_object import asker_of
from rota.store.training_jobs import Shown, body_of, moment, status_of
from tests.builders import Lab, cluster, job


def test_the_end_that_was_expected_gives_way_to_the_one_that_came() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a"))
    expected = Shown(finish_s=lab.now + 1000)
    status = status_of(lab.job("a"), expected, accepted="{}")
    assert status["expectedFinish"] == moment(lab.now + 1000)
    lab.wait(10)
    lab.exited("a")
    over = lab.store.job(JobId("a"))
    assert over is not None
    assert status_of(over, expected, accepted="{}")["expectedFinish"] == moment(lab.now)


@pytest.mark.parametrize("user", ["ann", "ann.b", "ann@lab.example", "sa.team-a.trainer"])
def test_whose_it_is_can_be_told_by_its_very_name(user: str) -> None:
    """Those who guard the objects compare it with whoever edits or deletes one."""
    accepted = json.dumps({"user": user, "program": '{"request": {}}'})
    meta = body_of("x", JobId("x"), accepted=accepted, key=b"k")["metadata"]
    assert asker_of(meta, default="nobody") == user
    lab = Lab(cluster("1x1"))
    lab.run(job("x", user=user))
    selected = status_of(lab.job("x"), accepted=accepted)["selector"].split(",")
    assert selected == ["rota.dev/job=x", f"rota.dev/user={user}"]
