import json
from pathlib import Path

import pytest

from rota.core.estimation.speed_model import PRIOR_SPEEDUPS
from rota.core.model.allocation import Slot
from rota.core.model.job import Estimate, GpuShare, JobSpec, Mode, Processes
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.errors import InputError
from rota.simulator.traces import csv_table, load
from rota.simulator.workload import TraceJob


def read(tmp_path: Path, **fields: object) -> TraceJob:
    """The one job of a JSONL trace with these fields besides the needed ones."""
    path = tmp_path / "t.jsonl"
    needed = {"name": "job", "submit_s": 0, "gpus": 1, "duration_s": 60}
    path.write_text(json.dumps(needed | fields))
    return load(str(path)).jobs[0]


def slots(n: int):
    return tuple(Slot(NodeId("n"), (index,)) for index in range(n))


def test_the_needed_columns_alone(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("duration_s,name,gpus,submit_s\n60,job,2,5\n")
    (job,) = load(str(path)).jobs
    assert (job.id, job.submit_s, job.row) == ("j00001", 5, 2)
    assert job.spec == JobSpec(
        "job", min_workers=2, max_workers=2, requested_workers=2, estimate=Estimate(60, 2)
    )
    assert job.runtime.run_s(slots(2)) == pytest.approx(60)


def test_processes_and_nodes(tmp_path: Path):
    spec = read(tmp_path, gpus="1..4", processes="per-node", nodes=1).spec
    assert (spec.processes, spec.max_nodes) == (Processes.PER_NODE, 1)
    with pytest.raises(InputError, match="must be one of per-node, per-gpu"):
        read(tmp_path, gpus="1..4", processes="per-core")


def test_every_column(tmp_path: Path):
    job = read(
        tmp_path,
        gpus="2..8@4",
        gpus_per_worker=2,
        gpu_types=["A100", "V100"],
        node_labels={"disk": "ssd", "room": 2},
        cpus=8,
        memory="64GiB",
        user="user-1",
        project="vision",
        priority=-3,
        mode="live",
        category="resnet",
        epochs=90,
        speedups=[1, 1.8, 2.5, 3],
        estimate_s=100,
        min_runtime_s=30,
    )
    assert job.spec == JobSpec(
        "job",
        user="user-1",
        project="vision",
        priority=-3,
        mode=Mode.LIVE,
        min_workers=1,
        max_workers=4,
        requested_workers=2,
        gpus=2,
        gpu_types=("A100", "V100"),
        node_labels=frozenset({("disk", "ssd"), ("room", "2")}),
        cpus=8,
        memory_bytes=64 * GIB,
        epochs=90,
        estimate=Estimate(100, 2, (0, 1, 1.8, 2.5, 3)),
        category="resnet",
        min_runtime_s=30,
    )
    assert job.runtime.run_s(slots(2)) == pytest.approx(60)
    assert job.runtime.run_s(slots(4)) == pytest.approx(60 * 1.8 / 3)


@pytest.mark.parametrize(
    ("gpus", "whole", "share"),
    [
        ("0.5", 0, GpuShare(fraction=0.5)),
        ("6GiB", 0, GpuShare(memory_bytes=6 * GIB)),
        ("0", 0, None),
    ],
)
def test_shares_and_jobs_without_gpus_are_one_worker(
    tmp_path: Path, gpus: str, whole: int, share: GpuShare | None
):
    spec = read(tmp_path, gpus=gpus).spec
    assert (spec.gpus, spec.share) == (whole, share)
    assert (spec.min_workers, spec.max_workers, spec.requested_workers) == (1, 1, 1)


def test_without_speedups_the_prior_stands_in(tmp_path: Path):
    job = read(tmp_path, gpus="1..4@2")
    assert job.runtime.run_s(slots(4)) == pytest.approx(60 * PRIOR_SPEEDUPS[2] / PRIOR_SPEEDUPS[4])


def test_null_and_empty_mean_left_out(tmp_path: Path):
    assert read(tmp_path, user=None, mode="", speedups=[]) == read(tmp_path)


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"gpus": "4..2"}, "gpus", "the minimum 4 is above the maximum 2; write 2, 1..4"),
        ({"gpus": "1.5"}, "gpus", "'1.5' is not a GPU share"),
        ({"gpus": "3", "gpus_per_worker": 2}, "gpus", "3 is not a multiple of 2 GPUs per worker"),
        ({"gpus": "0.5", "gpus_per_worker": 2}, "gpus_per_worker", "only a job with whole GPUs"),
        ({"gpus_per_worker": 0}, "gpus_per_worker", "'0' is not a whole number of at least 1"),
        ({"duration_s": -1}, "duration_s", "'-1' is not above 0 and at most 1e+12"),
        ({"duration_s": 0}, "duration_s", "'0' is not above 0"),
        ({"duration_s": float("nan")}, "duration_s", "'nan' is not a number"),
        ({"duration_s": float("inf")}, "duration_s", "'inf' is not above 0"),
        ({"duration_s": "soon"}, "duration_s", "'soon' is not a number"),
        ({"submit_s": -5}, "submit_s", "'-5' is not between"),
        ({"epochs": 0}, "epochs", "'0' is not above 0"),
        ({"cpus": -1}, "cpus", "'-1' is not between"),
        ({"memory": "lots"}, "memory", "'lots' is not an amount of memory like 6GiB"),
        (
            {"priority": "high"},
            "priority",
            "'high' is not a whole number between -1,000,000 and 1,000,000",
        ),
        (
            {"priority": 10**9},
            "priority",
            "'1000000000' is not a whole number between -1,000,000 and 1,000,000",
        ),
        ({"mode": "magic"}, "mode", "unknown mode 'magic'; known: fixed, restart, torchrun"),
        (
            {"node_labels": "ssd"},
            "node_labels",
            "'ssd' is not a list of key=value; write labels such as disk=ssd|room=2",
        ),
        ({"speedups": "1|x"}, "speedups", "is not a list of numbers above 0"),
        ({"speedups": "1|-2"}, "speedups", "is not a list of numbers above 0"),
        ({"speedups": "1|nan"}, "speedups", "is not a list of numbers above 0"),
        (
            {"speedups": [2, 3]},
            "speedups",
            "starts with 2; the first number is for one worker and must be 1",
        ),
        (
            {"gpus": "1..4", "speedups": [1, 2]},
            "speedups",
            "ends at 2 workers, but the job may have",
        ),
        ({"gpus": "600"}, "speedups", "is required for a job with more than 512 workers"),
        ({"name": ""}, "name", "is missing"),
        ({"name": True}, "name", "true is neither a string nor a number"),
        ({"colour": "red"}, "colour", "unknown field; known: name, submit_s"),
    ],
)
def test_bad_fields(tmp_path: Path, fields: dict[str, object], field: str, message: str):
    with pytest.raises(InputError) as caught:
        read(tmp_path, **fields)
    assert (caught.value.where.row, caught.value.where.field) == (1, field)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"name": "a"', "row 1: is not JSON: "),
        ('{"name": "a"}', "row 1, field 'submit_s': is missing"),
        (
            '{"name": "a", "submit_s": 0, "gpus": 1, "duration_s": 1}\n[1]',
            "row 2: is not a JSON ob",
        ),
        ('{"a": ' + "[" * 100_000, "row 1: is nested too deeply"),
        ('{"name": "\xff"}', "row 1: is not UTF-8 text"),
    ],
)
def test_bad_lines(tmp_path: Path, content: str, message: str):
    path = tmp_path / "t.jsonl"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError) as caught:
        load(str(path))
    assert message in str(caught.value)


def test_too_many_lines_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_table, "MAX_ROWS", 1)
    path = tmp_path / "t.jsonl"
    path.write_text('{"name": "a", "submit_s": 0, "gpus": 1, "duration_s": 1}\n' * 2)
    with pytest.raises(InputError, match="has more than 1 rows"):
        load(str(path))


def test_an_unknown_column_is_named(tmp_path: Path):
    path = tmp_path / "t.csv"
    path.write_text("name,submit_s,gpus,duration_s,colour\na,0,1,1,red\n")
    with pytest.raises(InputError, match="row 1, field 'colour': unknown column; known: name"):
        load(str(path))


@pytest.mark.parametrize("depth", [1, 900])
def test_a_list_within_a_list_is_refused(tmp_path: Path, depth: int):
    path = tmp_path / "t.jsonl"
    nested = "[" * depth + "[1]" + "]" * depth
    path.write_text(
        f'{{"name": "a", "submit_s": 0, "gpus": 1, "duration_s": 1, "speedups": {nested}}}'
    )
    with pytest.raises(InputError, match="field 'speedups': is a nested list"):
        load(str(path))
