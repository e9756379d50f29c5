"""Training measurements of a job: epoch times per size, steps, and the cost of a stop."""

from __future__ import annotations

from dataclasses import dataclass, field

MEASURED, FITTED = "measured", "fitted"
HERE, CATEGORY, ESTIMATE, PRIOR = "here", "category", "estimate", "prior"
"""The origin of a figure: this job, other jobs of its category, the submitter's estimate, or the
default assumption for all jobs."""


@dataclass(frozen=True, slots=True)
class SizeFigure:
    """The time of an epoch with a number of GPUs. Errors are relative. `kind` is `measured` (on
    one node or across nodes) or `fitted`, the value that scheduling uses. `count` is the number of
    measured epochs. Unknown values are None."""

    gpus: int
    kind: str
    origin: str
    crosses_nodes: bool = False
    count: int = 0
    epoch_s: float | None = None
    epoch_error: float = 0.0
    speedup: float | None = None
    speedup_error: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFigure:
    """A sample of a worker's training. Memory is that of its processes; GPU memory is what the
    driver reports; 0 if unknown."""

    at_s: float
    attempt: int
    worker: int
    gpus: int
    """Of the whole job."""
    epochs_done: float
    step_s: float
    samples_per_s: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class WorkerFigure:
    """The newest or last known state of a worker. A straggler has a `slowness`: the ratio of its
    step time to that of the other workers."""

    worker: int
    node: str = ""
    step_s: float = 0.0
    samples_per_s: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    slowness: float | None = None


@dataclass(frozen=True, slots=True)
class Handling:
    """Durations of the newest start, save, load and stop; None if there was none."""

    start_s: float | None = None
    save_s: float | None = None
    load_s: float | None = None
    stop_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobProfile:
    """The measurements of a job and the estimates from them. `steps` are samples, oldest first,
    with fewer old ones. `metrics` are the newest values. Jobs of one `category` share estimates."""

    id: str
    name: str
    category: str
    min_gpus: int
    max_gpus: int
    epochs: float | None
    epochs_done: float
    sizes: list[SizeFigure]
    steps: list[StepFigure] = field(default_factory=list[StepFigure])
    workers: list[WorkerFigure] = field(default_factory=list[WorkerFigure])
    handling: Handling = field(default_factory=Handling)
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    lost_s: float = 0.0
