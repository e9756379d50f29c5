"""Jobs that have run, with what a simulation needs to know about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryJob:
    """A job that has run. The fields are those of a trace (docs/reference/traces.md), except that
    `submitted_s` is a Unix time. Empty and None: unknown, or the default of a trace."""

    id: str
    name: str
    user: str
    project: str
    state: str
    submitted_s: float
    gpus: str
    duration_s: float
    """Run time at the requested size. Of a running job: with the expected rest, if it is known."""
    gpus_per_worker: int
    processes: str
    nodes: int
    gpu_types: list[str]
    node_labels: dict[str, str]
    cpus: float
    memory_bytes: int
    priority: int
    mode: str
    category: str
    epochs: float | None
    speedups: list[float]
    estimate_s: float | None
    min_runtime_s: float | None


@dataclass(frozen=True, slots=True)
class HistoryPage:
    """Jobs of the history, newest first. Pass `next` as `before` to get the next page.
    `n_left_out` jobs of this page have not run."""

    jobs: list[HistoryJob]
    next: int | None = None
    n_left_out: int = 0
