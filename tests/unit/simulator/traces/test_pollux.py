"""Pollux's workloads on tables small enough to work out by hand.

Two batch sizes (10 and 20), two epochs that end at 100 and 200 steps' worth of progress, and
gradients whose variance equals their square: a step at 20 is worth 2 / 1.5 of one at 10.
"""

from pathlib import Path

import pytest

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.node import NodeId
from rota.errors import InputError
from rota.simulator.traces import load
from rota.simulator.traces.pollux import concave, placement_of
from rota.simulator.traces.pollux_profiles import Application, read_application

HEADER = "name,time,application,num_replicas,batch_size\n"
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,5,1.0,0.2
1,10,2.0,0.2
2,5,1.2,0.4
2,10,2.2,0.4
11,5,1.6,0.8
11,10,2.6,0.8
12,5,1.8,0.8
12,10,2.8,0.8
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
3,3,5,2.0,1.0
3,3,10,3.0,1.0
3,6,5,2.2,1.2
3,6,10,3.2,1.2
"""
VALIDATION = "progress,iteration,metric,grad_sqr,grad_var\n"
STEPS_AT_10 = 200
STEPS_AT_20 = 200 / (2 / 1.5)


@pytest.fixture
def toy(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles" / "toy"
    folder.mkdir(parents=True)
    (folder / "placements.csv").write_text(PLACEMENTS)
    (folder / "scalability.csv").write_text(SCALABILITY)
    (folder / "validation-10.csv").write_text(VALIDATION + "100,100,1,1,1\n200,200,2,1,1\n")
    (folder / "validation-20.csv").write_text(VALIDATION + "110,80,1,1,1\n205,150,2,1,1\n")
    return folder


@pytest.fixture
def application(toy: Path) -> Application:
    return read_application(toy, "toy")


def held(*by_node: int) -> Allocation:
    return tuple(
        Slot(NodeId(f"n{node}"), (gpu,)) for node, n in enumerate(by_node) for gpu in range(n)
    )


def test_the_smallest_batch_on_one_gpu(application: Application):
    assert application.run_s(10, (1,)) == pytest.approx(STEPS_AT_10 * 2.0)


def test_a_larger_batch_needs_fewer_steps(application: Application):
    assert application.run_s(20, (2,)) == pytest.approx(STEPS_AT_20 * 2.2)


def test_a_batch_beyond_the_memory_is_accumulated(application: Application):
    assert application.split(20, 1).accumulated == 1
    assert application.run_s(20, (1,)) == pytest.approx(STEPS_AT_20 * (2.0 + (2.0 - 0.2)))


def test_one_gpu_accumulates_any_batch_above_the_smallest(application: Application):
    split = application.split(12, 1)
    assert (split.pass_size, split.accumulated, split.batch_size) == (6, 1, 12)


def test_a_batch_is_never_above_the_largest_measured(application: Application):
    split = application.split(20, 3)
    assert (split.pass_size, split.batch_size) == (6, 18)


def test_nodes_matter(application: Application):
    assert application.run_s(20, (1, 1)) == pytest.approx(STEPS_AT_20 * 2.6)


def test_rotations_of_a_ring_are_equal(application: Application):
    assert application.run_s(20, (2, 1)) == application.run_s(20, (1, 2))


def test_local_batches_are_interpolated(application: Application):
    assert application.steps.at((2,), 7) == pytest.approx((1.6, 0.4))


def test_arrangements_that_were_not_measured_are_interpolated(application: Application):
    whole, sync = application.steps.at((2, 1, 1), 5)
    assert whole == pytest.approx(2.0 + 0.2 / 3)
    assert sync == pytest.approx(1.0 + 0.2 / 3)


def test_outside_of_all_measurements_the_nearest_stands_in(application: Application):
    assert application.steps.at((4, 4, 4, 4), 5) == pytest.approx((2.2, 1.2))


def test_progress_between_measured_batch_sizes(toy: Path):
    (toy / "validation-20.csv").write_text(VALIDATION + "110,80,1,1,3\n205,150,2,1,3\n")
    # Halfway between the two, the variance is 2: a step is worth (2 + 1) / (2 / 1.5 + 1).
    steps = 200 / (3 / (2 / 1.5 + 1))
    application = read_application(toy, "toy")
    assert application.run_s(15, (1, 1, 1)) == pytest.approx(steps * 2.0)


def test_jobs_of_a_workload(toy: Path):
    trace = toy.parents[1] / "workloads" / "w.csv"
    trace.parent.mkdir()
    trace.write_text(HEADER + "toy-0,53,toy,2,20\ntoy-1,60,toy,1,10\n")
    workload = load(str(trace))
    first, second = workload.jobs
    assert (first.id, first.submit_s, first.spec.name) == ("j00001", 53, "toy-0")
    assert (first.spec.category, first.spec.epochs, first.spec.requested_workers) == (
        "toy-20",
        2,
        2,
    )
    assert first.runtime.run_s(held(2)) == pytest.approx(STEPS_AT_20 * 2.2)
    assert first.runtime.run_s(held(1, 1)) == pytest.approx(STEPS_AT_20 * 2.6)
    assert second.runtime.run_s(held(1)) == pytest.approx(400)


def test_the_scheduler_knows_the_run_time_and_concave_speedups(toy: Path):
    trace = toy.parents[1] / "w.csv"
    trace.write_text(HEADER + "toy-0,0,toy,2,20\n")
    spec = load(str(trace)).jobs[0].spec
    estimate = spec.estimate
    assert estimate is not None
    assert (estimate.workers, estimate.seconds) == (2, pytest.approx(STEPS_AT_20 * 2.2))
    assert estimate.speedups[:2] == (0, 1)
    assert len(estimate.speedups) == spec.max_workers + 1
    gains = [b - a for a, b in zip(estimate.speedups[1:], estimate.speedups[2:], strict=False)]
    assert gains == sorted(gains, reverse=True)
    assert min(gains) > 0


def test_a_request_beyond_the_peak_is_kept(toy: Path):
    slow = PLACEMENTS + "4,5,9.0,1.0\n4,10,9.5,1.0\n3,5,9.0,1.0\n3,10,9.5,1.0\n"
    (toy / "placements.csv").write_text(slow)
    trace = toy.parents[1] / "w.csv"
    trace.write_text(HEADER + "toy-0,0,toy,4,20\n")
    spec = load(str(trace)).jobs[0].spec
    assert (spec.requested_workers, spec.max_workers) == (4, 4)
    assert spec.estimate is not None
    assert spec.estimate.speedups[2] == spec.estimate.speedups[4]


def test_more_than_four_gpus_on_a_node_count_as_several_nodes():
    assert placement_of(held(4, 2)) == (4, 2)
    assert placement_of(held(6, 8)) == (4, 2, 4, 4)


def test_workers_of_a_node_are_counted_together_in_any_order():
    slots = tuple(Slot(NodeId(node), (gpu,)) for gpu, node in enumerate("abab"))
    assert placement_of(slots) == (2, 2)


@pytest.mark.parametrize(
    ("values", "curve"),
    [
        ([1, 2, 3], (1, 2, 3)),
        ([1, 3, 2, 4], (1, 3, 3.5, 4)),
        ([1, 1, 4], (1, 2.5, 4)),
        ([1], (1,)),
        ([1, 5], (1, 5)),
    ],
)
def test_the_lowest_concave_curve_above(values: list[float], curve: tuple[float, ...]):
    assert concave(values) == curve


@pytest.mark.parametrize(
    ("row", "field", "message"),
    [
        ("a,0,gpt,1,10", "application", "'gpt' has no profile in "),
        (
            "a,0,toy,1,5",
            "batch_size",
            "toy has no measurements for 5; use a batch size from 10 to 20",
        ),
        ("a,0,toy,1,40", "batch_size", "toy has no measurements for 40"),
        ("a,0,toy,5,20", "num_replicas", "5 GPUs are too many for a batch size of 20"),
        ("a,0,toy,0,20", "num_replicas", "'0' is not a whole number of at least 1"),
        ("a,nan,toy,1,20", "time", "'nan' is not a number"),
    ],
)
def test_bad_rows(toy: Path, row: str, field: str, message: str):
    trace = toy.parents[1] / "w.csv"
    trace.write_text(HEADER + row + "\n")
    with pytest.raises(InputError) as caught:
        load(str(trace))
    assert (caught.value.where.row, caught.value.where.field) == (2, field)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("table", "content", "message"),
    [
        ("placements.csv", "placement,local_bsz,step_time\n", "field 'sync_time': this column is"),
        ("placements.csv", PLACEMENTS.partition("1,5")[0], "placements.csv: has no measurements"),
        ("placements.csv", PLACEMENTS.replace("2,5,1.2", "x,5,1.2"), "row 4, field 'placement'"),
        ("placements.csv", PLACEMENTS.replace("1.0,0.2", "1.0,2"), "row 2, field 'sync_time': 2"),
        ("scalability.csv", SCALABILITY.replace("2.0,1.0", "-2,1"), "row 2, field 'step_time'"),
        ("scalability.csv", "", "scalability.csv: is empty"),
        ("validation-20.csv", VALIDATION, "validation-20.csv: has no epochs"),
        ("validation-20.csv", VALIDATION + "1,1,1,nan,1\n", "row 2, field 'grad_sqr': 'nan' is"),
        ("validation-20.csv", VALIDATION + "0,1,1,1,1\n", "row 2, field 'progress': '0' is not"),
        ("validation-x.csv", VALIDATION, "'x' in the file name is not a batch size"),
    ],
)
def test_bad_profiles(toy: Path, table: str, content: str, message: str):
    (toy / table).write_text(content)
    with pytest.raises(InputError) as caught:
        read_application(toy, "toy")
    assert message in str(caught.value)


@pytest.mark.parametrize("missing", ["placements.csv", "scalability.csv"])
def test_missing_tables(toy: Path, missing: str):
    (toy / missing).unlink()
    with pytest.raises(InputError, match=f"^toy/{missing}: cannot be read"):
        read_application(toy, "toy")


def test_missing_validation(toy: Path):
    for path in toy.glob("validation-*"):
        path.unlink()
    with pytest.raises(InputError, match=r"^toy: has no validation-<batch size>\.csv"):
        read_application(toy, "toy")


def test_missing_profiles_name_the_tried_directories(tmp_path: Path):
    trace = tmp_path / "workloads" / "w.csv"
    trace.parent.mkdir()
    trace.write_text(HEADER + "a,0,toy,1,10\n")
    with pytest.raises(InputError) as caught:
        load(str(trace))
    assert str(tmp_path / "workloads" / "profiles") in caught.value.hint
    assert str(tmp_path / "profiles") in caught.value.hint
