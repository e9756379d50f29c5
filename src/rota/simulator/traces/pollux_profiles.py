"""Run times of the applications in the workloads of Pollux, from their measured tables.

The rules follow the simulator of the OSDI'21 artifact (petuum/adaptdl, branch osdi21-artifact,
simulator/applications.py and simulator/simulator.py):

- `placements.csv` has the time of one step, and of its synchronisation, for each placement of GPUs
  on up to four nodes with four GPUs. A placement is a ring, so rotations are equal.
- `scalability.csv` has the same times by number of nodes and GPUs, for larger sizes. Other values
  are interpolated linearly: over local batch sizes if the placement was measured, else over (nodes,
  GPUs, local batch size).
- A batch that is too large for the memory of the GPUs is split into accumulated passes without
  synchronisation.
- `validation-<batch size>.csv` has the progress at the end of each epoch, in steps of the smallest
  batch, with the square and the variance of the gradients. A step of a batch `s` times as large is
  worth `(var + sqr) / (var / s + sqr)` steps of the smallest.
- A job ends after the last epoch of the tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rota.errors import InputError, InputLocation, shown
from rota.simulator.traces.csv_table import CsvRow, number_in, read_rows

if TYPE_CHECKING:
    from scipy.interpolate import LinearNDInterpolator

Placement = tuple[int, ...]
"""GPUs per node, in the order of the ring."""
Floats = NDArray[np.float64]

GPUS_PER_NODE = 4
"""The measured machines have four GPUs."""
MAX_NODES = 16
"""The largest measured number of nodes. More nodes count as this many, as in the artifact."""
MAX_LOCAL_BATCH = {"yolov3": 8}
"""Limits of the artifact that are below the largest measured local batch size."""

ROUNDING = 1e-8


@dataclass(frozen=True, slots=True)
class Split:
    """A batch divided among replicas: the size of one pass, and the extra passes per step."""

    replicas: int
    pass_size: int
    accumulated: int

    @property
    def batch_size(self) -> int:
        return self.replicas * self.pass_size * (self.accumulated + 1)


@dataclass(frozen=True, slots=True)
class Epoch:
    """Measurements of one epoch at one batch size."""

    progress: float
    sqr: float
    var: float


@dataclass(slots=True)
class Steps:
    """Times of a step, as (whole step, synchronisation), by local batch size and placement."""

    by_placement: dict[Placement, tuple[Floats, Floats]]
    points: Floats
    times: Floats
    _surface: LinearNDInterpolator | None = field(default=None, init=False)

    @property
    def min_local(self) -> int:
        return int(min(sizes[0] for sizes, _ in self.by_placement.values()))

    @property
    def max_local(self) -> int:
        return int(max(sizes[-1] for sizes, _ in self.by_placement.values()))

    @property
    def max_replicas(self) -> int:
        return int(self.points[:, 1].max())

    def at(self, placement: Placement, local: int) -> tuple[float, float]:
        ring = min(placement[i:] + placement[:i] for i in range(len(placement)))
        measured = self.by_placement.get(ring)
        if measured is None:
            return self._between(ring, local)
        sizes, times = measured
        whole, sync = (np.interp(local, sizes, times[:, column]) for column in (0, 1))
        return float(whole), float(sync)

    def _between(self, ring: Placement, local: int) -> tuple[float, float]:
        """Interpolate; outside the measured range, use the nearest measurement."""
        # SciPy is loaded when it is first needed, so that a simulation starts fast.
        from scipy.interpolate import (  # noqa: PLC0415
            LinearNDInterpolator,
            NearestNDInterpolator,
        )
        from scipy.spatial import QhullError  # noqa: PLC0415

        point = np.array([[min(len(ring), MAX_NODES), sum(ring), local]], dtype=np.float64)
        try:
            if self._surface is None:
                self._surface = LinearNDInterpolator(self.points, self.times)
            found = np.asarray(self._surface(point), dtype=np.float64)[0]
        except QhullError:
            found = np.array([math.nan])
        if np.isnan(found).any():
            nearest = NearestNDInterpolator(self.points, self.times)
            found = np.asarray(nearest(point), dtype=np.float64)[0]
        return float(found[0]), float(found[1])


@dataclass(slots=True)
class Application:
    """A measured training program. Caches run times, because jobs repeat the same few sizes."""

    name: str
    steps: Steps
    epochs: dict[int, tuple[Epoch, ...]]
    """By batch size, smallest first."""
    _run_s: dict[tuple[int, Placement], float] = field(
        default_factory=dict[tuple[int, Placement], float], init=False
    )
    _n_steps: dict[int, float] = field(default_factory=dict[int, float], init=False)

    @property
    def min_batch(self) -> int:
        return next(iter(self.epochs))

    @property
    def max_batch(self) -> int:
        return max(self.epochs)

    @property
    def n_epochs(self) -> int:
        return min(len(epochs) for epochs in self.epochs.values())

    @property
    def max_local(self) -> int:
        return min(self.steps.max_local, MAX_LOCAL_BATCH.get(self.name, self.steps.max_local))

    def run_s(self, batch_size: int, placement: Placement) -> float:
        """Return the seconds of the whole training with this batch size on these GPUs."""
        key = (batch_size, placement)
        known = self._run_s.get(key)
        if known is None:
            split = self.split(batch_size, sum(placement))
            known = self._steps_needed(split.batch_size) * self._step_s(placement, split)
            self._run_s[key] = known
        return known

    def split(self, batch_size: int, replicas: int) -> Split:
        local = math.ceil(batch_size / replicas - ROUNDING)
        accumulated = math.ceil(local / self.max_local - ROUNDING) - 1
        if replicas == 1 and batch_size > self.min_batch:
            # A single pass cannot measure the noise of the gradients.
            accumulated = max(1, accumulated)
        passes = accumulated + 1
        largest = self.max_batch // (replicas * passes)
        pass_size = min(math.ceil(local / passes - ROUNDING), max(1, largest))
        return Split(replicas, pass_size, accumulated)

    def _step_s(self, placement: Placement, split: Split) -> float:
        whole, sync = self.steps.at(placement, split.pass_size)
        return whole + split.accumulated * (whole - sync)

    def _steps_needed(self, batch_size: int) -> float:
        known = self._n_steps.get(batch_size)
        if known is None:
            known = sum(
                self._progress_of(epoch) / self._gain(batch_size, epoch)
                for epoch in range(self.n_epochs)
            )
            self._n_steps[batch_size] = known
        return known

    def _progress_of(self, epoch: int) -> float:
        """Return the progress of an epoch. It ends where the fastest batch size ended it."""
        ends = [min(runs[i].progress for runs in self.epochs.values()) for i in range(epoch + 1)]
        return ends[-1] - (ends[-2] if epoch else 0.0)

    def _gain(self, batch_size: int, epoch: int) -> float:
        sizes = list(self.epochs)
        sqr = np.interp(batch_size, sizes, [runs[epoch].sqr for runs in self.epochs.values()])
        var = np.interp(batch_size, sizes, [runs[epoch].var for runs in self.epochs.values()])
        shrunk = var * self.min_batch / batch_size + sqr
        return float((var + sqr) / shrunk) if shrunk > 0 else 1.0


def read_application(folder: Path, file: str) -> Application:
    """Read the tables of an application. `file` is the name of the folder in error messages."""
    return Application(folder.name, _read_steps(folder, file), _read_epochs(folder, file))


def _read_steps(folder: Path, file: str) -> Steps:
    measured: dict[Placement, dict[int, tuple[float, float]]] = {}
    table = f"{file}/placements.csv"
    needed = ("placement", "local_bsz", "step_time", "sync_time")
    for row in read_rows(folder / "placements.csv", table, needed=needed):
        text = str(row.whole("placement"))
        ring = tuple(int(digit) for digit in text)
        measured.setdefault(ring, {})[row.whole("local_bsz")] = _times(row)
    if not measured:
        raise InputError(InputLocation(table), "has no measurements")
    points = _means(measured)
    table = f"{file}/scalability.csv"
    needed = ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
    for row in read_rows(folder / "scalability.csv", table, needed=needed):
        key = (row.whole("num_nodes"), row.whole("num_replicas"), row.whole("local_bsz"))
        points[key] = _times(row)
    return Steps(
        {ring: _sorted_arrays(times) for ring, times in measured.items()},
        np.array(list(points), dtype=np.float64),
        np.array(list(points.values()), dtype=np.float64),
    )


def _times(row: CsvRow) -> tuple[float, float]:
    whole, sync = row.positive("step_time"), row.number("sync_time")
    if sync > whole:
        raise row.error("sync_time", f"{sync:g} is more than the step_time of {whole:g}")
    return whole, sync


def _means(
    measured: dict[Placement, dict[int, tuple[float, float]]],
) -> dict[tuple[int, int, int], tuple[float, float]]:
    """Average over the placements with equal numbers of nodes and GPUs."""
    groups: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    for ring, by_local in measured.items():
        for local, times in by_local.items():
            groups.setdefault((len(ring), sum(ring), local), []).append(times)
    return {
        key: (sum(t[0] for t in times) / len(times), sum(t[1] for t in times) / len(times))
        for key, times in sorted(groups.items())
    }


def _sorted_arrays(times: dict[int, tuple[float, float]]) -> tuple[Floats, Floats]:
    sizes = sorted(times)
    return (
        np.array(sizes, dtype=np.float64),
        np.array([times[size] for size in sizes], dtype=np.float64),
    )


def _read_epochs(folder: Path, file: str) -> dict[int, tuple[Epoch, ...]]:
    epochs: dict[int, tuple[Epoch, ...]] = {}
    for path in folder.glob("validation-*.csv"):
        table = f"{file}/{path.name}"
        size = path.stem.removeprefix("validation-")
        if not (size.isascii() and size.isdigit() and int(size)):
            raise InputError(
                InputLocation(table), f"'{shown(size)}' in the file name is not a batch size"
            )
        rows = read_rows(path, table, needed=("progress", "grad_sqr", "grad_var"))
        epochs[int(size)] = tuple(
            Epoch(
                row.positive("progress"), _statistic(row, "grad_sqr"), _statistic(row, "grad_var")
            )
            for row in rows
        )
        if not epochs[int(size)]:
            raise InputError(InputLocation(table), "has no epochs")
    if not epochs:
        raise InputError(InputLocation(file), "has no validation-<batch size>.csv")
    return dict(sorted(epochs.items()))


def _statistic(row: CsvRow, name: str) -> float:
    """Return a finite number. Gradient statistics may exceed the limit of `CsvRow.number`."""
    value = number_in(row.text(name))
    if not (value >= 0 and math.isfinite(value)):
        raise row.error(name, f"'{row.shown(name)}' is not a number of at least 0")
    return value
