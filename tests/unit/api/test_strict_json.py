"""Fields that nobody reads are refused by name."""

from typing import Any

import pytest

from rota.api.jobs import Batched
from rota.api.strict import require_known
from rota.daemon.fields import RefusedError
from rota.wire.jobs import JobRequest

GOOD = {"command": ["true"], "gpus": "0", "env": {"gpsu": "a value of a mapping"}}


def refusal(kind: Any, value: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        require_known(kind, value)
    assert str(caught.value).startswith(f"{caught.value.field}: ")
    return str(caught.value)


def test_a_mistyped_field_is_named_with_what_was_meant() -> None:
    expected = "gpsu: there is no such field; did you mean 'gpus'?"
    assert refusal(JobRequest, {"command": ["true"], "gpsu": "0"}) == expected


def test_in_a_batch_its_job_is_named_too() -> None:
    found = refusal(Batched, {"jobs": [GOOD, {**GOOD, "nmae": "x"}]})
    assert found == "jobs.1.nmae: there is no such field; did you mean 'name'?"


def test_what_resembles_nothing_is_answered_with_what_there_is() -> None:
    assert "there are jobs" in refusal(Batched, {"\x1b[31m": 1})
    assert "\x1b" not in refusal(Batched, {"\x1b[31m": 1})


@pytest.mark.parametrize("value", [GOOD, {}, [], None, "text", [{"gpsu": 1}]])
def test_all_else_is_for_others_to_judge(value: Any) -> None:
    require_known(JobRequest, value)
    require_known(None, value)
