"""Pollux's workloads: six measured applications, each job with its own batch size.

The profiles lie beside the workloads, as in the OSDI'21 artifact (petuum/adaptdl, Apache-2.0):
`profiles/<application>` in the folder of the workload or in the one above it.

Jobs keep the batch size of the trace at every number of GPUs (batch sizes that adapt are not
modelled). The range of a job is 1..peak, where peak is the size at which the tables say that it
runs fastest on as few nodes as possible; the requested size is the trace's `num_replicas`. The
scheduler is told the run time at the requested size and the speed-ups, made concave: a dip in
the measurements, such as at the step from one node to two, would otherwise look like the end of
all gain to a policy that goes one GPU at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from rota.core.model import Allocation, Estimate, JobSpec, NodeId
from rota.errors import PATH, InputError, Where, shown
from rota.simulator.traces.pollux_profiles import (
    GPUS_PER_NODE,
    Application,
    Placement,
    read_application,
)
from rota.simulator.traces.table import Row, read_rows
from rota.simulator.workload import Entry, Workload, workload_of

HEADER = ("name", "time", "application", "num_replicas", "batch_size")

SINGLE_GPU = frozenset({"ncf"})
"""Applications that the artifact keeps on one GPU: their table hardly gains from more."""


@dataclass(frozen=True, slots=True)
class MeasuredTraining:
    """The truth of a job: its application at its batch size."""

    application: Application
    batch_size: int

    def run_s(self, allocation: Allocation) -> float:
        return self.application.run_s(self.batch_size, placement_of(allocation))


@dataclass(frozen=True, slots=True)
class Shape:
    """What the jobs of one application and batch size have in common."""

    truth: MeasuredTraining
    speedups: tuple[float, ...]
    peak: int


def read(path: Path, file: str) -> Workload:
    profiles = _profiles_beside(path, file)
    applications: dict[str, Application] = {}
    shapes: dict[tuple[str, int], Shape] = {}
    entries: list[Entry] = []
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
    """GPUs by node. The measured nodes have four; more on one node count as several nodes."""
    counts: dict[NodeId, int] = {}
    for slot in allocation:
        counts[slot.node] = counts.get(slot.node, 0) + len(slot.gpus)
    placement: list[int] = []
    for count in counts.values():
        placement.extend(consolidated(count))
    return tuple(placement)


def consolidated(n_gpus: int) -> Placement:
    """So many GPUs on as few measured nodes as possible."""
    full, rest = divmod(n_gpus, GPUS_PER_NODE)
    return (GPUS_PER_NODE,) * full + ((rest,) if rest else ())


def concave(values: Sequence[float]) -> tuple[float, ...]:
    """The lowest concave curve that is nowhere below the values."""
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
    truth = MeasuredTraining(application, batch_size)
    return Shape(truth, (0.0, *concave(gains[:peak])), peak)


def _entry(row: Row, shape: Shape) -> Entry:
    requested = row.whole("num_replicas")
    application, batch_size = shape.truth.application, shape.truth.batch_size
    if requested > max(1, batch_size // application.steps.min_local):
        raise row.wrong(
            "num_replicas",
            f"{requested} GPUs are too many for a batch of {batch_size}",
            hint=f"{application.name} was measured from {application.steps.min_local} a GPU up",
        )
    # A request beyond the peak stays possible; nothing is gained by exceeding it.
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
        category=f"{application.name}-{batch_size}",  # another batch size scales otherwise
    )
    return Entry(row.number("time"), row.line, spec, shape.truth)


def _batch_size(row: Row, application: Application) -> int:
    batch_size = row.whole("batch_size")
    if not application.min_batch <= batch_size <= application.max_batch:
        raise row.wrong(
            "batch_size",
            f"{batch_size} was not measured for {application.name}",
            hint=f"it lies between {application.min_batch} and {application.max_batch}",
        )
    return batch_size


def _application(row: Row, *, profiles: Path, known: dict[str, Application]) -> Application:
    name = row.name("application")
    if name not in known:
        available = sorted(path.name for path in profiles.iterdir() if path.is_dir())
        if name not in available:
            raise row.wrong(
                "application",
                f"'{shown(name)}' has no profile in {shown(str(profiles), PATH)}",
                hint=f"there are {shown(', '.join(available), PATH) or 'none'}",
            )
        known[name] = read_application(profiles / name, str(profiles / name))
    return known[name]


def _profiles_beside(path: Path, file: str) -> Path:
    folders = [parent / "profiles" for parent in (path.parent, path.resolve().parent.parent)]
    for folder in folders:
        if folder.is_dir():
            return folder
    looked = " and ".join(shown(str(folder), PATH) for folder in folders)
    raise InputError(
        Where(file),
        "is a Pollux workload, and the measured profiles it needs are not beside it",
        f"looked for {looked}",
    )
