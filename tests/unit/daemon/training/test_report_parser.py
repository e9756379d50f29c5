"""Parsing of reports, and progress from several reports."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.model.events import ProgressReported
from rota.core.model.job import Job, JobId, Running, ServiceTime
from rota.daemon.errors import RefusedError
from rota.daemon.training.report_parser import SKEW_S, WorkerReport, parse_report
from rota.daemon.training.worker_progress import (
    FACT_EVERY_S,
    PRESENT_S,
    SAMPLE_EVERY_S,
    AttemptProgress,
    WorkerProgress,
)
from rota_trainer.reporting.messages import MOST_METRICS, MOST_RECORDS
from tests.support.builders import job, slots

NOW = 1_000_000.0

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
names = st.sampled_from([*WorkerReport.__slots__, "version", "generation"])


def report(**fields: Any) -> WorkerReport:
    return parse_report({"worker": 0, "sequence": 1, **fields}, now=NOW)


@given(raw=st.dictionaries(names, anything))
def test_only_valid_fields_are_used(raw: dict[str, Any]) -> None:
    found = parse_report({**raw, "worker": 0, "sequence": 1}, now=NOW)
    taken = [found.epochs_done, found.epochs_total, found.epochs_saved, found.wait_s]
    taken += [found.start_s, found.load_s, found.save_s, found.memory_bytes, found.steps_done]
    assert all(each is None or (math.isfinite(each) and each >= 0) for each in taken)
    assert all(math.isfinite(each) for each in found.metrics.values())
    assert all(sentence.isprintable() and len(sentence) < 600 for sentence in found.faults.values())


@pytest.mark.parametrize("number", [True, -1, 1.0, "1", None, 2**60, [1]])
@pytest.mark.parametrize("name", ["worker", "sequence"])
def test_worker_and_sequence_are_required(name: str, number: Any) -> None:
    with pytest.raises(RefusedError, match=name):
        report(**{name: number})


def steps(**fields: Any) -> dict[str, Any]:
    return {"at_s": NOW, "count": 2, "seconds": 1.0, **fields}


@pytest.mark.parametrize(
    "wrong",
    [
        {"count": 0},
        {"count": -1},
        {"seconds": math.nan},
        {"seconds": -0.1},
        {"seconds": math.inf},
        {"samples": -1},
        {"slowest_s": "fast"},
        {"at_s": NOW + SKEW_S + 1},
        {"at_s": NOW - SKEW_S - 1},
        {"at_s": None},
    ],
)
def test_only_the_invalid_record_is_ignored(wrong: dict[str, Any]) -> None:
    found = report(steps=[steps(), steps(**wrong), "?", steps()])
    assert len(found.steps) == 2
    assert list(found.faults) == ["steps"]


def test_newest_of_too_many_records_are_used() -> None:
    found = report(steps=[steps(count=1 + number) for number in range(MOST_RECORDS + 5)])
    assert [each.count for each in found.steps] == list(range(6, MOST_RECORDS + 6))
    assert list(found.faults) == ["steps_count"]


def test_first_of_too_many_metrics_are_used() -> None:
    found = report(metrics={f"m{number}": number for number in range(100_000)})
    assert list(found.metrics) == [f"m{number}" for number in range(MOST_METRICS)]
    assert found.faults == {
        "metrics_count": "100000 metrics exceed the limit of a report; the first 64 are used"
    }


def test_metric_names_with_control_characters_are_ignored() -> None:
    found = report(metrics={"\x1b[2J": 1.0, "ok": 2.0})
    assert found.metrics == {"ok": 2.0}
    assert "\x1b" not in found.faults["metrics_name"]


def trained(*reports: dict[str, Any]) -> tuple[WorkerProgress, dict[str, str]]:
    worker_progress, faults = WorkerProgress(0), dict[str, str]()
    for number, fields in enumerate(reports, start=1):
        faults |= worker_progress.update(report(**{"sequence": number, **fields}), now=NOW + number)
    return worker_progress, faults


def test_decreasing_progress_is_ignored() -> None:
    worker_progress, faults = trained(
        {"epochs_done": 3, "epochs_saved": 2}, {"epochs_done": 2, "epochs_saved": 1}
    )
    assert (worker_progress.epochs_done, worker_progress.epochs_saved) == (3, 2)
    assert list(faults) == ["epochs_done_back", "epochs_saved_back"]


@pytest.mark.parametrize(("sequence", "done"), [(5, 2), (4, 2), (6, 3), (1, 3)])
def test_duplicate_report_is_ignored_and_sequence_1_resets(sequence: int, done: int) -> None:
    worker_progress, faults = trained(
        {"sequence": 5, "epochs_done": 2}, {"sequence": sequence, "epochs_done": 3}
    )
    assert (worker_progress.epochs_done, faults) == (done, {})


def test_new_program_of_a_worker_may_be_behind() -> None:
    worker_progress, faults = trained(
        {"sequence": 9, "epochs_done": 5}, {"sequence": 1, "epochs_done": 1}
    )
    assert (worker_progress.epochs_done, faults) == (1, {})


def test_metrics_of_many_reports_are_bounded() -> None:
    worker_progress, _ = trained(
        *({"metrics": {f"{n}-{m}": 1.0 for m in range(9)}} for n in range(100))
    )
    assert len(worker_progress.metrics) == MOST_METRICS


class Course:
    """Reports of a job's workers, and what the scheduler hears of them."""

    def __init__(self) -> None:
        phase = Running(NOW, slots("1:0", "1:1"), numbers=(0, 1))
        spec = job(gpus=2, epochs=90.0)
        self.job = Job(JobId("job"), spec, NOW, phase, ServiceTime(NOW), attempt=1)
        self.attempt_progress = AttemptProgress(1)
        self.now = NOW
        self._sequence = 0

    def fact(
        self, *, worker: int = 0, after_s: float = 1.0, **fields: Any
    ) -> ProgressReported | None:
        self.now += after_s
        self._sequence += 1
        said = parse_report(
            {"worker": worker, "sequence": self._sequence, "hears": True, **fields}, now=self.now
        )
        worker_progress = self.attempt_progress.by_worker.setdefault(worker, WorkerProgress(worker))
        worker_progress.update(said, now=self.now)
        lead = self.attempt_progress.lead(self.job.numbers, now=self.now)
        if lead is None or lead.worker != worker:
            return None
        self.attempt_progress.add_epochs(said)
        fact = self.attempt_progress.next_fact(self.job, lead, now=self.now)
        if fact is not None:
            self.attempt_progress.record_sent(fact, lead, now=self.now)
        return fact


def epoch(seconds: float) -> dict[str, Any]:
    return {"at_s": NOW, "number": 1, "seconds": seconds}


def test_kernel_gets_only_the_events_that_it_needs() -> None:
    course = Course()
    first = course.fact(epochs_done=0.5, epochs_total=20)
    assert first is not None
    assert (first.hears, first.epochs_done, first.epochs_total) == (True, 0.5, 20)
    assert course.fact(epochs_done=0.6) is None
    ends = course.fact(epochs_done=2, epochs=[epoch(3.0), epoch(5.0)])
    assert ends is not None
    assert (ends.epoch_s, ends.saved) == (4.0, None)
    saved = course.fact(epochs_done=2, epochs_saved=2)
    assert saved is not None
    assert (saved.saved, saved.epoch_s) == (2, None)
    assert course.fact(epochs_done=2.2, epochs_saved=2) is None
    assert course.fact(epochs_done=2.5, epochs_saved=2, after_s=FACT_EVERY_S) is not None


def test_program_that_has_not_started_keeps_the_stored_progress() -> None:
    course = Course()
    fact = course.fact(epochs_done=0)
    assert fact is not None
    assert (fact.epochs_done, fact.saved) == (course.job.epochs_done, course.job.epochs_saved)
    assert course.fact(epochs_done=0) is None


def test_lowest_reporting_rank_is_the_lead() -> None:
    course = Course()
    assert course.fact(worker=1, epochs_done=1) is not None
    assert course.fact(worker=0, epochs_done=2, epochs_saved=2) is not None
    assert course.fact(worker=1, epochs_done=3, after_s=FACT_EVERY_S) is None
    fact = course.fact(worker=1, epochs_done=4, after_s=PRESENT_S)
    assert fact is not None
    assert fact.epochs_done == 4


def test_samples_are_periodic_and_at_ends_of_epochs() -> None:
    course, taken = Course(), list[float]()
    for second in range(21):
        course.fact(epochs_done=1 + second / 10, after_s=1.0)
        lead = course.attempt_progress.by_worker[0]
        course.attempt_progress.epochs_s = [1.0] if second == 12 else []
        sample = course.attempt_progress.sample(course.job, lead, now=course.now)
        if sample is not None:
            taken.append(second)
    assert taken == [0, 5, 10, 12, 17]
    assert SAMPLE_EVERY_S == 5
