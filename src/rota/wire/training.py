"""What is known of a job's training: times at each size, how it went, what it costs to stop."""

from __future__ import annotations

from dataclasses import dataclass, field

MEASURED, FITTED = "measured", "fitted"
HERE, CATEGORY, ESTIMATE, PRIOR = "here", "category", "estimate", "prior"
"""Where a figure comes from: this job, jobs of its category, the submitter's word, or nothing but
what is assumed of every job."""


@dataclass(frozen=True, slots=True)
class SizeFigure:
    """An epoch on so many workers. Errors are relative. A figure is `measured`, on one node or
    across several, or `fitted`: what decisions rest upon. `count` is how many epochs it was
    measured. What nobody knows is None."""

    workers: int
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
    """How a worker trained around a moment. Memory is that of its processes and, on the card,
    what the card tells; 0 where nobody does."""

    at_s: float
    attempt: int
    worker: int
    workers: int
    epochs_done: float
    step_s: float
    samples_per_s: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    metrics: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True)
class WorkerFigure:
    """A worker as it is by now, or as it was. One that holds the others up has a `slowness`: how
    many times as long as theirs its steps take."""

    worker: int
    node: str = ""
    step_s: float = 0.0
    samples_per_s: float = 0.0
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    slowness: float | None = None


@dataclass(frozen=True, slots=True)
class Handling:
    """What the newest start, save, load and stop took; None where there was none."""

    start_s: float | None = None
    save_s: float | None = None
    load_s: float | None = None
    stop_s: float | None = None


@dataclass(frozen=True, slots=True)
class JobProfile:
    """What a job measured, and what is made of it. `steps` are samples, the first first, thinned
    where they are old; `metrics` are the newest; jobs of one `category` learn from each other."""

    id: str
    name: str
    category: str
    min_workers: int
    max_workers: int
    epochs: float | None
    epochs_done: float
    sizes: list[SizeFigure]
    steps: list[StepFigure] = field(default_factory=list[StepFigure])
    workers: list[WorkerFigure] = field(default_factory=list[WorkerFigure])
    handling: Handling = field(default_factory=Handling)
    metrics: dict[str, float] = field(default_factory=dict[str, float])
    lost_s: float = 0.0
