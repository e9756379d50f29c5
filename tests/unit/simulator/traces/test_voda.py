from pathlib import Path

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.job import Estimate
from rota.core.model.node import NodeId
from rota.errors import InputError, UserError
from rota.simulator.traces import load
from rota.simulator.traces.voda import PROFILES

HEADER = "name,time,application,num_proc,min_num_proc,max_num_proc,epochs\n"


def written(path: Path, rows: str) -> str:
    path.write_text(HEADER + rows)
    return str(path)


def slots(n: int):
    return tuple(Slot(NodeId("n"), (index,)) for index in range(n))


def test_the_author_s_figures_are_built_in(tmp_path: Path):
    workload = load(written(tmp_path / "run.csv", "v,7,vgg16,2,1,4,50\n"))
    (job,) = workload.jobs
    spec = job.spec
    assert (job.submit_s, spec.category, spec.epochs) == (7, "vgg16", 50)
    assert (spec.min_workers, spec.max_workers, spec.requested_workers) == (1, 4, 2)
    assert spec.estimate == Estimate(1465, 1, (0, 1, 1.785, 2.5, 3.125))
    assert job.runtime.run_s(slots(1)) == 1465
    assert job.runtime.run_s(slots(4)) == 1465 / 3.125


def test_profiles_beside_the_trace_come_first(tmp_path: Path):
    (tmp_path / "profiles.csv").write_text(
        "application,run_time_1gpu_s,speedup_1,speedup_2\nvgg16,100,1,2\nmine,50,1,1.5\n"
    )
    rows = "a,0,vgg16,1,1,2,5\nb,1,mine,2,1,2,5\nc,2,resnet50,2,1,4,50\n"
    jobs = load(written(tmp_path / "run.csv", rows)).jobs
    assert [job.runtime.run_s(slots(2)) for job in jobs] == [50, 50 / 1.5, 1545 / 1.857]


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("a,0,gpt,2,1,4,5", "application", "'gpt' has no profile; known: inceptionv3, resnet50"),
        ("a,0,vgg16,2,3,1,5", "min_num_proc", "the minimum 3 is above the maximum 1"),
        ("a,0,vgg16,5,1,4,5", "num_proc", "5 is not between 1 and 4"),
        ("a,0,vgg16,2,1,8,5", "max_num_proc", "the profile of vgg16 ends at 4 GPUs"),
        ("a,0,vgg16,2,1,4,0", "epochs", "'0' is not a whole number of at least 1"),
        ("a,-1,vgg16,2,1,4,5", "time", "'-1' is not between"),
        (",0,vgg16,2,1,4,5", "name", "is empty"),
    ],
)
def test_bad_rows(tmp_path: Path, row: str, field: str, message: str):
    with pytest.raises(InputError) as caught:
        load(written(tmp_path / "run.csv", row + "\n"))
    assert (caught.value.where.row, caught.value.where.field) == (2, field)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ("application,run_time_1gpu_s\nvgg16,1\n", "row 1, field 'speedup_1': this column is mis"),
        ("application,speedup_1\nvgg16,1\n", "row 1, field 'run_time_1gpu_s': this column is"),
        ("application,run_time_1gpu_s,speedup_1\nvgg16,1,0\n", "row 2, field 'speedup_1': '0' is"),
        ("application,run_time_1gpu_s,speedup_1,speedup_3\nx,1,1,3\n", "field 'speedup_2'"),
    ],
)
def test_bad_profiles(tmp_path: Path, profiles: str, message: str):
    (tmp_path / "profiles.csv").write_text(profiles)
    with pytest.raises(InputError) as caught:
        load(written(tmp_path / "run.csv", "a,0,vgg16,1,1,1,5\n"))
    assert caught.value.where.file.endswith("profiles.csv")
    assert message in str(caught.value)


@pytest.mark.parametrize(("name", "last_s"), [("voda:run_1", 635), ("voda:run_1_hard", 3216)])
def test_built_in_workloads(name: str, last_s: float):
    workload = load(name)
    assert len(workload.jobs) == 24
    assert workload.jobs[-1].submit_s == last_s
    categories = [job.spec.category for job in workload.jobs]
    assert {name: categories.count(name) for name in PROFILES} == dict.fromkeys(PROFILES, 6)
    assert workload.jobs[0].spec.name == "inceptionv3-01"
    assert {job.spec.epochs for job in workload.jobs if job.spec.category == "transformer"} == {40}


def test_an_unknown_built_in_lists_the_known_ones():
    with pytest.raises(
        UserError, match="unknown built-in workload 'voda:run_2'; known: voda:run_1,"
    ):
        load("voda:run_2")
