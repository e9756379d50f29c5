"""From the text of a user to a policy, with one clear line for each error."""

import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rota.errors import PolicyError
from rota.policies import registry
from rota.policies.elastic_tiresias import ElasticTiresias
from rota.policies.fifo import Fifo
from rota.policies.parameters import parameters, show
from rota.policies.registry import POLICIES, describe, find, names, parse, parse_many
from rota.policies.tiresias import Tiresias

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "policies.md"

VODA = {
    "FIFO": "fifo",
    "ElasticFIFO": "elastic-fifo",
    "SRJF": "srjf",
    "ElasticSRJF": "elastic-srjf",
    "Tiresias": "tiresias",
    "ElasticTiresias": "elastic-tiresias",
    "FfDLOptimizer": "ffdl",
    "AFS-L": "afs-l",
}

MINE = """
from __future__ import annotations
from dataclasses import dataclass

@dataclass(frozen=True, slots=True)
class Mine:
    patience_s: float
    is_kind: bool = False
    word: str = "so"

    def __post_init__(self) -> None:
        if self.patience_s > 100:
            raise ValueError("nobody is that patient")

    def size(self, jobs, budget, now):
        return {}

class Plain:
    def size(self, jobs, budget, now):
        return {}

number = 3
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return str(path)


@pytest.mark.parametrize(("theirs", "ours"), list(VODA.items()))
def test_voda_names_are_aliases(theirs: str, ours: str) -> None:
    assert find(theirs) is find(ours) is find(theirs.upper())


@pytest.mark.parametrize("name", POLICIES)
def test_defaults_describe_themselves_by_name(name: str) -> None:
    assert describe(parse(name)) == name


@pytest.mark.parametrize("name", POLICIES)
def test_every_parameter_and_its_default_are_in_the_reference(name: str) -> None:
    text = REFERENCE.read_text()
    (section,) = re.findall(rf"^## `{name}`\n(.*?)(?=^## )", text, re.DOTALL | re.MULTILINE)
    for each in parameters(POLICIES[name]):
        assert each.default is not None
        assert f"| `{each.name}` | {show(each.default)} |" in section


def test_parameters_are_read() -> None:
    assert parse("tiresias:threshold_gpu_s=1800,knob=4") == Tiresias(1800.0, 4.0)
    assert parse("ElasticTiresias: compaction = 4") == ElasticTiresias(compaction=4)


def test_a_description_is_read_back() -> None:
    text = "elastic-tiresias:threshold_gpu_s=1800.5,knob=4,compaction=0"
    assert describe(parse(text)) == text
    assert describe(parse("tiresias:knob=8")) == "tiresias"


def test_several_policies_are_parsed() -> None:
    assert [describe(each) for each in parse_many(["all"])] == list(POLICIES)
    texts = ["srjf, fifo", "tiresias:knob=4,threshold_gpu_s=9"]
    assert [describe(each) for each in parse_many(texts)] == [
        "srjf",
        "fifo",
        "tiresias:threshold_gpu_s=9,knob=4",
    ]
    assert len(parse_many(["FIFO,fifo", "all"])) == len(POLICIES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "tireseas",
            (
                "no policy 'tireseas', did you mean 'tiresias'?; known: fifo, elastic-fifo, srjf, "
                "elastic-srjf, tiresias, elastic-tiresias, ffdl, afs-l, or ./file.py:Class"
            ),
        ),
        (
            "tiresias:treshold_gpu_s=3",
            (
                "policy 'tiresias' has no parameter 'treshold_gpu_s', did you mean "
                "'threshold_gpu_s'?; tiresias takes threshold_gpu_s=3600 (a number above 0), "
                "knob=8 (a number above 0)"
            ),
        ),
        (
            "tiresias:knob=x",
            "policy 'tiresias': parameter 'knob' must be a number above 0, not 'x'",
        ),
        (
            "tiresias:knob=0",
            "policy 'tiresias': parameter 'knob' must be a number above 0, not '0'",
        ),
        ("tiresias:knob=inf", "parameter 'knob' must be a number above 0, not 'inf'"),
        ("tiresias:knob=nan", "parameter 'knob' must be a number above 0, not 'nan'"),
        ("tiresias:threshold_gpu_s=-1", "must be a number above 0, not '-1'"),
        ("elastic-tiresias:compaction=1.5", "must be a whole number at least 0, not '1.5'"),
        ("elastic-tiresias:compaction=-1", "must be a whole number at least 0, not '-1'"),
        ("fifo:x=1", "policy 'fifo' has no parameter 'x'; fifo takes no parameters"),
        ("tiresias:knob", "parameter 'knob' of 'tiresias' has no value; tiresias takes"),
        ("tiresias:knob=1,knob=2", "parameter 'knob' of 'tiresias' is given twice"),
        ("tiresias:", "'tiresias:' has no parameters after ':'; tiresias takes"),
        ("fifo,tiresias:knob=4", "'fifo,tiresias:knob=4' is a comma-separated list"),
        ("", "no policy ''"),
        ("./nowhere.py:Mine", "no Python file './nowhere.py' for policy 'Mine'"),
        (
            "./nowhere.py",
            "no class given for policy file './nowhere.py'; write ./nowhere.py:MyPolicy",
        ),
        ("./:Mine", "no Python file './'"),
    ],
)
def test_errors_are_reported_in_one_line(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_many([text])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_parameter_in_code_is_reported() -> None:
    with pytest.raises(PolicyError, match="'knob' must be a number above 0"):
        Tiresias(knob=-1.0)


def test_a_policy_from_a_file(mine: str) -> None:
    text = f"{mine}:Mine:patience_s=60,is_kind=true"
    policy = parse(text)
    assert policy.size([], None, now=0.0) == {}  # type: ignore[arg-type]
    assert describe(policy) == text
    assert describe(parse(f"{mine}:Plain")) == f"{mine}:Plain"


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (":Mine", "requires parameter 'patience_s'"),
        (":Mine:patience_s=101", "nobody is that patient"),
        (":Mine:patience_s=1,is_kind=perhaps", "'is_kind' must be true or false, not 'perhaps'"),
        (":number", "is not a policy; a policy is a class with a method 'size'"),
        (":Missing", "is not a policy"),
        (":Plain:x=1", "takes no parameters"),
    ],
)
def test_errors_in_a_file_are_reported(mine: str, rest: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse(mine + rest)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "code", ["def (", "1 / 0", "import nothing_of_this_name", "raise KeyError('a\\nb')"]
)
def test_a_file_that_does_not_load_is_reported_in_one_line(tmp_path: Path, code: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(code)
    with pytest.raises(PolicyError, match="cannot load policy") as caught:
        parse(f"{path}:Mine")
    assert "\n" not in str(caught.value)


def test_an_installed_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    offered = EntryPoint("lab", "rota.policies.fifo:Fifo", registry.GROUP)
    broken = EntryPoint("broken", "rota.policies.nowhere:Nobody", registry.GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda **_: [offered, broken])
    assert isinstance(parse("lab"), Fifo)
    assert names() == [*POLICIES, "broken", "lab"]
    with pytest.raises(PolicyError, match="cannot load policy 'broken': ModuleNotFoundError"):
        parse("broken")


@pytest.mark.parametrize(
    "text", ["fifo,tiresias:knob=3", "tiresias:knob=3,fifo", "fifo,./mine.py:Mine:knob=3"]
)
def test_a_comma_separated_list_allows_no_parameters(text: str):
    with pytest.raises(PolicyError) as caught:
        parse_many([text])
    assert str(caught.value) == (
        f"'{text}' is a comma-separated list, which allows no parameters; repeat --policy instead"
    )


HEAD = "from dataclasses import dataclass\n"
SIZE = "\n    def size(self, jobs, budget, *, now): return {}\n"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import sys; sys.exit(3)", "cannot load policy '{path}': SystemExit: 3"),
        (
            "class A:\n    def __init__(self, x): ..." + SIZE,
            (
                "cannot create policy '{path}:A': TypeError: A.__init__() missing 1 required"
                " positional argument: 'x'"
            ),
        ),
        (
            "class A:\n    def __init__(self): raise OSError('no\\nluck')" + SIZE,
            "cannot create policy '{path}:A': OSError: no luck",
        ),
        (
            HEAD + "@dataclass\nclass A:\n    x: 'Missing' = 1" + SIZE,
            "cannot read the parameters of policy 'A': NameError: name 'Missing' is not defined",
        ),
        (
            HEAD + "@dataclass\nclass A:\n    x: list[int] = ()" + SIZE,
            "parameter 'x' has the type list[int]; allowed types: int, float, bool, str",
        ),
    ],
)
def test_foreign_code_fails_in_one_line(tmp_path: Path, code: str, message: str) -> None:
    path = tmp_path / "foreign.py"
    path.write_text(code)
    with pytest.raises(PolicyError) as caught:
        parse(f"{path}:A")
    assert " ".join(str(caught.value).split()) == message.format(path=path)


def test_a_parameter_may_be_none(tmp_path: Path) -> None:
    path = tmp_path / "foreign.py"
    path.write_text(HEAD + "@dataclass\nclass A:\n    c: int | None = None" + SIZE)
    assert describe(parse(f"{path}:A")) == f"{path}:A"
    assert describe(parse(f"{path}:A:c=4")) == f"{path}:A:c=4"
    assert [str(each) for each in parameters(find(f"{path}:A"))] == ["c (a whole number)"]
