"""`rota policy`: list, show, and decide line by line."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from rota.policies.registry import GROUP
from tests.unit.cli.conftest import Rota

CASE = (
    b'{"gpus": 4, "jobs": [{"name": "a", "min": 1, "max": 4}, {"name": "b", "min": 4, "max": 4}]}'
)


def test_list_names_every_policy(rota: Rota):
    listed = rota("policy", "list").out
    described = json.loads(rota("policy", "list", "--json").out)
    assert {"fifo", "afs-l"} <= {each["name"] for each in described}
    assert all(each["name"] in listed and each["description"] for each in described)


def test_list_prints_whole_sentences(rota: Rota):
    lines = rota("policy", "list").out.splitlines()
    rows = [line for line in lines if "-" in line.split()[0] or line.startswith("f")]
    assert rows
    assert all(row.rstrip().endswith(".") for row in rows)


def test_show_lists_parameters_with_defaults(rota: Rota):
    shown = rota("policy", "show", "tiresias").out
    assert "threshold_gpu_s=3600" in shown
    described = json.loads(rota("policy", "show", "tiresias", "--json").out)
    assert described["parameters"][0]["name"] == "threshold_gpu_s"
    assert "No parameters." in rota("policy", "show", "fifo").out


def test_show_of_an_unknown_policy(rota: Rota):
    result = rota("policy", "show", "fifi")
    assert result.code == 2
    assert result.err.startswith("rota: no policy 'fifi', did you mean 'fifo'?")


def test_decide_answers_every_case_in_order(rota: Rota):
    more = b'{"gpus": 0, "jobs": [{"name": "\xc3\xa9\\ud800", "min": 1, "max": 1}]}'
    result = rota("policy", "decide", "elastic-fifo", stdin=CASE + b"\n\n" + more)
    assert result.code == 0
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"a": 4, "b": 0},
        {"é\ud800": 0},
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b'{"gpus": 4, "jobs": [{"name": "a", "min": 0, "max": 4}]}', "line 2, field 'jobs[0].min"),
        (b'{"gpus": 4 "jobs": []}', "line 2: not JSON: expecting ',' delimiter at column 12"),
        (b'{"gpus": NaN, "jobs": []}', "line 2: not JSON: NaN is not a number"),
        (b'{"gpus": "\xff"}', "line 2: not JSON: "),
        (b"[" * 100_000, "line 2: nested too deeply"),
        (b"[]", "line 2: a case must be an object"),
    ],
)
def test_decide_stops_at_a_bad_line(rota: Rota, line: bytes, complaint: str):
    result = rota("policy", "decide", "fifo", stdin=CASE + b"\n" + line + b"\n" + CASE)
    assert result.code == 2
    assert result.out == '{"a": 1, "b": 0}\n'
    assert result.err.startswith(f"rota: {complaint}")
    assert result.err.count("\n") == 1


def test_decide_answers_thousands_of_cases(rota: Rota):
    result = rota("policy", "decide", "fifo", stdin=(CASE + b"\n") * 2_000)
    assert result.out.count("\n") == 2_000


LEAVES = "import sys\nclass Mine:\n    def size(self, jobs, budget, *, now): sys.exit(EXIT)\n"


@pytest.mark.parametrize("code", ["", "0", "'bye'"])
def test_policy_that_exits_is_reported(rota: Rota, tmp_path: Path, code: str):
    mine = tmp_path / "mine.py"
    mine.write_text(LEAVES.replace("EXIT", code))
    decided = rota("policy", "decide", f"{mine}:Mine", stdin=CASE)
    simulated = rota("simulate", "voda:run_1", "--cluster", "3x4", "--policy", f"{mine}:Mine")
    for result in (decided, simulated):
        assert (result.code, result.out) == (2, "")
        assert "the policy raised SystemExit" in result.err
        assert result.err.count("\n") == 1


def test_infinite_default_in_json(rota: Rota, tmp_path: Path):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n@dataclass\nclass Mine:\n"
        "    patience_s: float = float('inf')\n    start_s: float = float('nan')\n    n: int = 3\n"
        "    def size(self, jobs, budget, *, now): return {}\n"
    )
    result = rota("policy", "show", f"{mine}:Mine", "--json")
    assert (result.code, result.err) == (0, "")
    shown = json.loads(result.out, parse_constant=pytest.fail)["parameters"]
    assert [each["default"] for each in shown] == ["inf", "nan", 3]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_list_leaves_out_broken_policies(
    rota: Rota, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
):
    offered = [
        EntryPoint("gone", "no_such_package:Policy", GROUP),
        EntryPoint("mine", "rota.policies.fifo:Fifo", GROUP),
        EntryPoint("odd", "rota.policies.fifo:at_minimum", GROUP),
    ]
    monkeypatch.setattr("rota.policies.registry.entry_points", lambda **_: offered)
    result = rota("policy", "list", *flags)
    assert result.code == 0
    assert "fifo" in result.out
    assert "mine" in result.out
    assert "gone" not in result.out
    first, second = result.err.splitlines()
    assert first.startswith("rota: left out policy 'gone': ")
    assert "no_such_package" in first
    assert second.startswith("rota: left out policy 'odd': 'odd' is not a policy")
