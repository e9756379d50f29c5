"""`rota simulate`: all input is checked before the first run, and nothing is half-written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from rota.errors import RotaError
from rota.simulator.results import Measures
from tests.unit.cli.conftest import Rota

TASK = ("simulate", "voda:run_1", "--cluster", "3x4", "--policy", "fifo")


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a run started before all input was checked")

    monkeypatch.setattr("rota.simulator.runner.simulate", fail)


@pytest.mark.usefixtures("no_run")
@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (
            ["--restart-cost", "-1"],
            "--restart-cost must be a number of seconds from 0 to 1e+12, not -1",
        ),
        (["--round", "2e12"], "--round must be a number of seconds from 0 to 1e+12, not 2e+12"),
        (["--round", "nan"], "--round must be a number of seconds from 0 to 1e+12, not nan"),
        (
            ["--min-runtime", "inf"],
            "--min-runtime must be a number of seconds from 0 to 1e+12, not inf",
        ),
        (["--round", "soon"], "invalid value for '--round'"),
        (["--seed", "-3"], "invalid value for '--seed'"),
        (["--policy", "fifi"], "no policy 'fifi'"),
        (["--policy", "tiresias:nob=3"], "policy 'tiresias' has no parameter 'nob'"),
        (["--html", "missing/report.html"], "cannot write missing/report.html"),
        (["--cluster", "3by4"], "cluster '3by4'"),
        (["--cluster", "1x1"], "voda:run_1"),
    ],
)
def test_bad_input_is_one_line_before_any_run(rota: Rota, flags: list[str], complaint: str):
    result = rota(*TASK, *flags)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"rota: {complaint}")
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("no_run")
def test_an_unknown_trace_is_told(rota: Rota):
    result = rota("simulate", "missing.csv", "--cluster", "3x4")
    assert result.code == 2
    assert "missing.csv" in result.err


def test_same_command_same_output_except_the_decision_times(rota: Rota):
    def figures() -> object:
        (row,) = json.loads(rota(*TASK, "--json").out)
        return {name: value for name, value in row.items() if "decision" not in name}

    assert figures() == figures()


def test_every_policy_asked_for_is_an_object(rota: Rota):
    rows = json.loads(rota(*TASK, "--policy", "srjf,elastic-fifo", "--json").out)
    assert [row["policy"] for row in rows] == ["fifo", "srjf", "elastic-fifo"]
    assert all(row["jobs"] == row["finished"] == 24 for row in rows)


def test_flags_reach_the_run(rota: Rota):
    (quick,) = json.loads(rota(*TASK, "--restart-cost", "0", "--json").out)
    (slow,) = json.loads(rota(*TASK, "--restart-cost", "600", "--json").out)
    assert quick["mean_jct_s"] < slow["mean_jct_s"]


def test_the_report_is_written_beside_the_table(rota: Rota, tmp_path: Path):
    target = tmp_path / "report.html"
    result = rota(*TASK, "--html", str(target))
    assert result.code == 0
    assert result.err == ""
    assert "Completion time" in result.out
    assert target.read_text(encoding="utf-8").count("<rect") >= 24


def test_a_report_that_fails_leaves_the_figures(
    rota: Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("rota.simulator.report.write.write_whole", refusing("the disk is full"))
    result = rota(*TASK, "--html", str(tmp_path / "report.html"), "--json")
    assert (result.code, result.err) == (1, "rota: the disk is full\n")
    assert json.loads(result.out)[0]["policy"] == "fifo"
    assert list(tmp_path.iterdir()) == []


def test_the_reference_tells_every_flag_and_every_figure(rota: Rota):
    reference = (Path(__file__).parents[3] / "docs" / "reference" / "simulate.md").read_text()
    flags = set(re.findall(r"--[a-z][a-z-]+", rota("simulate", "--help").out)) - {"--help"}
    figures = {field.name for field in fields(Measures)}
    assert [name for name in sorted(flags | figures) if f"`{name}" not in reference] == []


def refusing(message: str) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise RotaError(message)

    return refuse
