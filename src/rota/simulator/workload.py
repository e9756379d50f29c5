"""A workload: the jobs of a trace in the order of their submission, each with its truth.

The readers in `traces` make workloads; the runner replays them. What the scheduler may know of a
job is in its spec; how the job really runs is its truth, which only the runner asks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rota.core.model import Allocation, JobId, JobSpec
from rota.errors import InputError, Where

MIN_ID_DIGITS = 5


class Truth(Protocol):
    """How a job really runs, which the scheduler does not see."""

    def run_s(self, allocation: Allocation) -> float:
        """Seconds of the whole job, were it to run on this allocation from start to end.

        Start-up is not part of it."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """A job whose speed depends on its number of workers alone.

    The table of speed-ups (`speedups[n]` on n workers) is shared between jobs, so that a trace of
    a hundred thousand jobs stays small. More workers than the table has speed nothing up further.
    """

    one_s: float
    speedups: tuple[float, ...]

    def run_s(self, allocation: Allocation) -> float:
        workers = min(len(allocation), len(self.speedups) - 1)
        return self.one_s / self.speedups[workers]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace. `row` is its line in the file, for messages."""

    id: JobId
    submit_s: float
    spec: JobSpec
    truth: Truth
    row: int


@dataclass(frozen=True, slots=True)
class Workload:
    """`gpus_field` is what the trace calls the number of GPUs, for messages."""

    name: str
    jobs: tuple[TraceJob, ...]
    gpus_field: str = "gpus"


class Entry(NamedTuple):
    """A job as a reader finds it, before the order of all jobs is known."""

    submit_s: float
    row: int
    spec: JobSpec
    truth: Truth


def workload_of(
    name: str, entries: Iterable[Entry], *, gpus_field: str = "gpus", from_first: bool = False
) -> Workload:
    """The entries as a workload. Ids sort as strings in the order of submission.

    `from_first` counts the time from the first submission instead of the trace's own zero.
    """
    ordered = sorted(entries, key=lambda entry: (entry.submit_s, entry.row))
    if not ordered:
        raise InputError(Where(name), "has no jobs", "a trace needs at least one")
    zero_s = ordered[0].submit_s if from_first else 0.0
    digits = max(MIN_ID_DIGITS, len(str(len(ordered))))
    jobs = (
        TraceJob(JobId(f"j{number:0{digits}}"), submit_s - zero_s, spec, truth, row)
        for number, (submit_s, row, spec, truth) in enumerate(ordered, start=1)
    )
    return Workload(name, tuple(jobs), gpus_field)
