"""What is told of objects that are no jobs of ours."""

from rota.core.model import JobId
from rota.core.states import State
from rota.daemon.verdicts import is_refused, why_put_back

META = {"name": "mine", "labels": {"rota.dev/job": "1q1ghcmf"}, "generation": 2}


def test_an_object_that_was_put_back_is_told_what_became_of_its_job() -> None:
    known = {JobId("1q1ghcmf"): State.SUCCEEDED}
    assert "job 1q1ghcmf has succeeded" in why_put_back(META, known)
    assert "nobody knows job 1q1ghcmf" in why_put_back(META, {})


def test_a_refusal_holds_until_an_edit() -> None:
    assert is_refused({"metadata": META, "status": {"state": "refused", "observedGeneration": 2}})
    for status in ({"state": "refused", "observedGeneration": 1}, {"state": "held"}, {}):
        assert not is_refused({"metadata": META, "status": status})
