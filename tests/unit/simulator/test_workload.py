import pytest

from rota.core.model.allocation import Slot
from rota.core.model.job import JobSpec
from rota.core.model.node import NodeId
from rota.errors import InputError
from rota.simulator.workload import Scaling, TraceEntry, workload_of

TRUTH = Scaling(60.0, (0.0, 1.0, 1.5))


def entries(*times: float) -> list[TraceEntry]:
    return [
        TraceEntry(time, row, JobSpec(f"at-{time:g}"), TRUTH) for row, time in enumerate(times, 2)
    ]


def test_jobs_are_ordered_by_submission_and_rows_break_ties():
    workload = workload_of("made", entries(5, 1, 5, 0))
    assert [(job.id, job.submit_s, job.row) for job in workload.jobs] == [
        ("j00001", 0, 5),
        ("j00002", 1, 3),
        ("j00003", 5, 2),
        ("j00004", 5, 4),
    ]


def test_ids_sort_as_strings_beyond_five_digits():
    workload = workload_of("made", entries(*range(100_001)))
    ids = [job.id for job in workload.jobs]
    assert ids == sorted(ids)
    assert ids[-1] == "j100001"


def test_time_can_count_from_the_first_submission():
    workload = workload_of("made", entries(700, 900), from_first=True)
    assert [job.submit_s for job in workload.jobs] == [0, 200]


def test_a_workload_without_jobs_is_refused():
    with pytest.raises(InputError, match=r"^made: has no jobs"):
        workload_of("made", [])


@pytest.mark.parametrize(("workers", "seconds"), [(1, 60), (2, 40), (3, 40)])
def test_scaling_follows_its_table_and_is_flat_beyond_it(workers: int, seconds: float):
    allocation = tuple(Slot(NodeId("n"), (index,)) for index in range(workers))
    assert TRUTH.run_s(allocation) == seconds
