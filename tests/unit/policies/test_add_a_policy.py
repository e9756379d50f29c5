"""The guide to add a policy works when followed literally."""

import re
from pathlib import Path

import pytest

from rota.core.model.job import ServiceTime
from rota.policies.decide_case import decide_case
from rota.policies.registry import describe, parse
from tests.unit.policies.policy_cases import job, sized

GUIDE = Path(__file__).parents[3] / "docs" / "how-to" / "add-a-policy.md"


@pytest.fixture
def in_a_folder_with_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 30
    (tmp_path / "mine.py").write_text(code)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_a_folder_with_mine")
def test_the_policy_of_the_guide_gives_the_documented_result() -> None:
    jobs = [{"name": "big", "min": 4, "max": 4}, {"name": "small", "min": 1, "max": 2}]
    policy = parse("./mine.py:SmallFirst")
    assert decide_case(policy, {"gpus": 4, "jobs": jobs}) == {"big": 0, "small": 1}


@pytest.mark.usefixtures("in_a_folder_with_mine")
def test_the_parameter_of_the_guide_is_read() -> None:
    policy = parse("./mine.py:SmallFirst:patience_s=600")
    assert describe(policy) == "./mine.py:SmallFirst:patience_s=600"
    waited = ServiceTime(as_of_s=0.0, last_waiting_s=601.0)
    jobs = [job("small", "1"), job("big", "4", place=1, service=waited)]
    assert sized(policy, jobs, 4) == {"small": 0, "big": 4}
    assert sized(parse("./mine.py:SmallFirst"), jobs, 4) == {"small": 1, "big": 0}
