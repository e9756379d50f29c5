"""A workload: the jobs of a trace in order of submission, each with its real run time.

The readers in `traces` create workloads; the runner simulates them. The spec of a job has what the
scheduler may know. The runtime model has how long the job really runs; only the runner uses it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rota.core.model.allocation import Allocation
from rota.core.model.job import JobId, JobSpec
from rota.errors import InputError, InputLocation

MIN_ID_DIGITS = 5


class RuntimeModel(Protocol):
    """The real run time of a job, which the scheduler does not see."""

    def run_s(self, allocation: Allocation) -> float:
        """Return the seconds of the whole job on this allocation, without the start-up time. The
        allocation has a slot for each unit."""
        ...


@dataclass(frozen=True, slots=True)
class Scaling:
    """A job whose speed depends only on its size.

    `speedups[n]` is the speed-up on n units; more units than the table has bring no gain. Jobs
    share one table, so that a trace of a hundred thousand jobs stays small in memory.
    """

    one_s: float
    speedups: tuple[float, ...]

    def run_s(self, allocation: Allocation) -> float:
        units = min(len(allocation), len(self.speedups) - 1)
        return self.one_s / self.speedups[units]


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job of a trace. `row` is its line in the file, for error messages."""

    id: JobId
    submit_s: float
    spec: JobSpec
    runtime: RuntimeModel
    row: int


@dataclass(frozen=True, slots=True)
class Workload:
    """The jobs of a trace. `gpus_field` is the name of its GPU column, for error messages."""

    name: str
    jobs: tuple[TraceJob, ...]
    gpus_field: str = "gpus"


class TraceEntry(NamedTuple):
    """A job as a reader parses it, before the jobs are sorted and numbered."""

    submit_s: float
    row: int
    spec: JobSpec
    runtime: RuntimeModel


def workload_of(
    name: str, entries: Iterable[TraceEntry], *, gpus_field: str = "gpus", from_first: bool = False
) -> Workload:
    """Sort the entries by submission and give them ids, which sort as strings in the same order.

    With `from_first`, time starts at the first submission instead of the zero of the trace.
    """
    ordered = sorted(entries, key=lambda entry: (entry.submit_s, entry.row))
    if not ordered:
        raise InputError(InputLocation(name), "has no jobs", "a trace needs at least one")
    zero_s = ordered[0].submit_s if from_first else 0.0
    digits = max(MIN_ID_DIGITS, len(str(len(ordered))))
    jobs = (
        TraceJob(JobId(f"j{number:0{digits}}"), submit_s - zero_s, spec, runtime, row)
        for number, (submit_s, row, spec, runtime) in enumerate(ordered, start=1)
    )
    return Workload(name, tuple(jobs), gpus_field)
