"""Reads the workloads of Pollux: six measured applications, each job with its own batch size.

The profiles are in `profiles/<application>`, in the directory of the workload or its parent, as in
the OSDI'21 artifact (petuum/adaptdl, Apache-2.0).

A job keeps the batch size of the trace at every number of GPUs; adaptive batch sizes are not
modelled. A job can have 1 to `peak` GPUs, where `peak` is the fastest size on as few nodes as
possible according to the tables. The requested size is `num_replicas`. The scheduler gets the run
time at the requested size, and the speed-ups made concave. Without this, a policy that adds one GPU
at a time would stop at a dip in the measurements, such as the step from one node to two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rota.core.model.allocation import Allocation
from rota.core.model.job import Estimate, JobSpec
from rota.core.model.node import NodeId
from rota.errors import MAX_SHOWN_PATH_CHARS, InputError, InputLocation, shown
from rota.simulator.traces.csv_table import CsvRow, read_rows
from rota.simulator.traces.pollux_profiles import (
    GPUS_PER_NODE,
    Application,
    Placement,
    read_application,
)
from rota.simulator.workload import TraceEntry, Workload, workload_of

HEADER = ("name", "time", "application", "num_replicas", "batch_size")

SINGLE_GPU = frozenset({"ncf"})
"""Applications that the artifact keeps on one GPU, because more GPUs bring little gain."""


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """The runtime model of a job: its application at its batch size."""

    application: Application
    batch_size: int

    def run_s(self, allocation: Allocation) -> float:
        return self.application.run_s(self.batch_size, placement_of(allocation))


@dataclass(frozen=True, slots=True)
class Shape:
    """The scaling of all jobs with one application and batch size."""

    runtime: MeasuredTraining
    speedups: tuple[float, ...]
    peak: int


def read(path: Path, file: str) -> Workload:
    profiles = _profiles_beside(path, file)
    applications: dict[str, Application] = {}
    shapes: dict[tuple[str, int], Shape] = {}
    entries: list[TraceEntry] = []
    for row in read_rows(path, file, needed=HEADER):
        application = _application(row, profiles=profiles, known=applications)
        batch_size = _batch_size(row, application)
        shape = shapes.get((application.name, batch_size))
        if shape is None:
            shape = _shape(application, batch_size)
            shapes[application.name, batch_size] = shape
        entries.append(_entry(row, shape))
    return workload_of(file, entries, gpus_field="num_replicas")


def placement_of(allocation: Allocation) -> Placement:
    """Return the GPUs per node. A node with more than four GPUs counts as several nodes.

    The measured nodes have four GPUs.
    """
    counts: dict[NodeId, int] = {}
    for slot in allocation:
        counts[slot.node] = counts.get(slot.node, 0) + len(slot.gpus)
    placement: list[int] = []
    for count in counts.values():
        placement.extend(consolidated(count))
    return tuple(placement)


def consolidated(n_gpus: int) -> Placement:
    """Place `n_gpus` GPUs on as few measured nodes as possible."""
    full, rest = divmod(n_gpus, GPUS_PER_NODE)
    return (GPUS_PER_NODE,) * full + ((rest,) if rest else ())


def concave(values: Sequence[float]) -> tuple[float, ...]:
    """Return the upper concave hull of the values."""
    corners: list[tuple[int, float]] = []
    for x, y in enumerate(values):
        while len(corners) > 1 and not _bends_down(corners[-2:], (x, y)):
            corners.pop()
        corners.append((x, y))
    curve = [values[0]]
    for (x0, y0), (x1, y1) in pairwise(corners):
        curve.extend(y0 + (y1 - y0) * (x - x0) / (x1 - x0) for x in range(x0 + 1, x1 + 1))
    return tuple(curve)


def _bends_down(line: Sequence[tuple[int, float]], end: tuple[int, float]) -> bool:
    (x0, y0), (x1, y1) = line
    return (y1 - y0) * (end[0] - x1) > (end[1] - y1) * (x1 - x0)


def _shape(application: Application, batch_size: int) -> Shape:
    steps = application.steps
    most = max(1, min(steps.max_replicas, batch_size // steps.min_local))
    if application.name in SINGLE_GPU:
        most = 1
    one_s = application.run_s(batch_size, (1,))
    gains = [one_s / application.run_s(batch_size, consolidated(n)) for n in range(1, most + 1)]
    peak = max(range(1, most + 1), key=lambda n: gains[n - 1])
    runtime = MeasuredTraining(application, batch_size)
    return Shape(runtime, (0.0, *concave(gains[:peak])), peak)


def _entry(row: CsvRow, shape: Shape) -> TraceEntry:
    requested = row.whole("num_replicas")
    application, batch_size = shape.runtime.application, shape.runtime.batch_size
    if requested > max(1, batch_size // application.steps.min_local):
        raise row.error(
            "num_replicas",
            f"{requested} GPUs are too many for a batch size of {batch_size}",
            hint=f"{application.name} needs at least {application.steps.min_local} per GPU",
        )
    # A job may request more than the peak, without any gain.
    flat = (shape.speedups[-1],) * (requested - shape.peak)
    spec = JobSpec(
        name=row.name("name"),
        max_workers=max(shape.peak, requested),
        requested_workers=requested,
        epochs=application.n_epochs,
        estimate=Estimate(
            application.run_s(batch_size, consolidated(requested)),
            requested,
            shape.speedups + flat if flat else shape.speedups,
        ),
        category=f"{application.name}-{batch_size}",  # each batch size scales differently
    )
    return TraceEntry(row.number("time"), row.line, spec, shape.runtime)


def _batch_size(row: CsvRow, application: Application) -> int:
    batch_size = row.whole("batch_size")
    if not application.min_batch <= batch_size <= application.max_batch:
        raise row.error(
            "batch_size",
            f"{application.name} has no measurements for {batch_size}",
            hint=f"use a batch size from {application.min_batch} to {application.max_batch}",
        )
    return batch_size


def _application(row: CsvRow, *, profiles: Path, known: dict[str, Application]) -> Application:
    name = row.name("application")
    if name not in known:
        available = sorted(path.name for path in profiles.iterdir() if path.is_dir())
        if name not in available:
            raise row.error(
                "application",
                f"'{shown(name)}' has no profile in {shown(str(profiles), MAX_SHOWN_PATH_CHARS)}",
                hint=f"available: {shown(', '.join(available), MAX_SHOWN_PATH_CHARS) or 'none'}",
            )
        known[name] = read_application(profiles / name, str(profiles / name))
    return known[name]


def _profiles_beside(path: Path, file: str) -> Path:
    folders = [parent / "profiles" for parent in (path.parent, path.resolve().parent.parent)]
    for folder in folders:
        if folder.is_dir():
            return folder
    looked = " and ".join(shown(str(folder), MAX_SHOWN_PATH_CHARS) for folder in folders)
    raise InputError(
        InputLocation(file),
        "is a Pollux workload, but its measured profiles are missing",
        f"tried {looked}",
    )
