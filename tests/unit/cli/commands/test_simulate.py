"""`rota simulate`: all input is checked before the first run, and nothing is half-written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from rota.errors import RotaError
from rota.simulator.metrics import RunMetrics
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
        (["--seed", "-3"], "--seed must be a whole number from 0, not -3"),
        (["--seed", "3"], "--seed is for generated traces only, not for 'voda:run_1'"),
        (["--policy", "fifi"], "no policy 'fifi'"),
        (["--policy", "tiresias:nob=3"], "policy 'tiresias' has no parameter 'nob'"),
        (["--html", "missing/report.html"], "cannot write missing/report.html"),
        (["--cluster", "3by4"], "cluster '3by4'"),
        (["--cluster", "1x0"], "voda:run_1"),
    ],
)
def test_bad_input_is_one_line_before_any_run(rota: Rota, flags: list[str], complaint: str):
    result = rota(*TASK, *flags)
    assert result.code == 2
    assert result.out == ""
    assert result.err.startswith(f"rota: {complaint}")
    assert result.err.count("\n") == 1


@pytest.mark.usefixtures("no_run")
def test_unknown_trace(rota: Rota):
    result = rota("simulate", "missing.csv", "--cluster", "3x4")
    assert result.code == 2
    assert "missing.csv" in result.err


def test_same_command_same_output_except_the_decision_times(rota: Rota):
    def figures() -> object:
        (row,) = json.loads(rota(*TASK, "--json").out)
        return {name: value for name, value in row.items() if "decision" not in name}

    assert figures() == figures()


def test_json_has_one_object_per_policy(rota: Rota):
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


def test_failed_report_still_prints_results(
    rota: Rota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "rota.simulator.report.writer.write_atomically", refusing("the disk is full")
    )
    result = rota(*TASK, "--html", str(tmp_path / "report.html"), "--json")
    assert (result.code, json.loads(result.err)["message"]) == (1, "the disk is full")
    assert json.loads(result.out)[0]["policy"] == "fifo"
    assert list(tmp_path.iterdir()) == []


def test_reference_lists_every_flag_and_metric(rota: Rota):
    reference = (Path(__file__).parents[4] / "docs" / "reference" / "simulate.md").read_text()
    flags = set(re.findall(r"--[a-z][a-z-]+", rota("simulate", "--help").out)) - {"--help"}
    figures = {field.name for field in fields(RunMetrics)}
    assert [name for name in sorted(flags | figures) if f"`{name}" not in reference] == []


def refusing(message: str) -> Callable[..., None]:
    def refuse(*_: object) -> None:
        raise RotaError(message)

    return refuse


def test_jobs_without_gpus_run_on_nodes_without_gpus(rota: Rota, tmp_path: Path):
    trace = tmp_path / "cpu.csv"
    trace.write_text("name,submit_s,gpus,duration_s,cpus\na,0,0,60,2\nb,0,0,60,4\n")
    result = rota("simulate", str(trace), "--cluster", "2x0/4cpu", "--policy", "fifo", "--json")
    assert result.code == 0
    assert json.loads(result.out)[0]["finished"] == 2


def test_request_above_the_cluster_gets_all_gpus(rota: Rota, tmp_path: Path):
    trace = tmp_path / "large.csv"
    trace.write_text("name,submit_s,gpus,duration_s\na,0,1..8@8,60\n")
    result = rota("simulate", str(trace), "--cluster", "1x4", "--json")
    assert result.code == 0
    assert all(row["finished"] == 1 for row in json.loads(result.out))


def test_jobs_with_labels_run_on_nodes_with_labels(rota: Rota, tmp_path: Path):
    trace = tmp_path / "labels.csv"
    trace.write_text("name,submit_s,gpus,duration_s,node_labels\na,0,1,60,disk=ssd|room=2\n")
    task = ("simulate", str(trace), "--policy", "fifo", "--json", "--cluster")
    result = rota(*task, "1x4,1x4:A100@80GiB/96cpu/1TiB/disk=ssd/room=2")
    assert json.loads(result.out)[0]["finished"] == 1
    assert (
        "requests nodes with the label disk=ssd, room=2, no node has it"
        in rota(*task, "1x4/disk=ssd").err
    )


def test_unfinished_jobs_give_a_warning(rota: Rota, tmp_path: Path):
    trace = tmp_path / "fixed.csv"
    rows = [f"{name},{start},1,36000,fixed" for name, start in (("a", 0), ("b", 10), ("c", 20))]
    trace.write_text("\n".join(["name,submit_s,gpus,duration_s,mode", *rows]))
    result = rota("simulate", str(trace), "--cluster", "1x1", "--policy", "fifo,tiresias")
    assert result.code == 0
    assert result.err == "rota: unfinished jobs: 3 of 3 under tiresias\n"
    assert "Completion time" in result.out
