"""What a worker and the daemon say to each other: reports go out, orders come back.

A report is sent as JSON to `POST /v1/training/report`, at most once a second, with all that happened
since the last one. The daemon holds its answer until there is an order or `wait_s` have passed, so
that an order reaches a worker at once on the one connection that it keeps. Both sides ignore fields
that they do not know and fill in those that are missing, so that either may be older.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Dict, List, Optional

VERSION = 1
PATH = "/v1/training/report"
MOST_RECORDS = 64
"""Records of steps or epochs in one report; faster steps share a record."""
MOST_METRICS = 64
LONGEST_NAME = 64


@dataclass(frozen=True)
class StepsRecord:
    """Some steps in a row: when the last one ended, how long they took together, and the slowest."""

    at_s: float
    count: int
    seconds: float
    slowest_s: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class EpochRecord:
    """A finished epoch: `number` counts from 1. `seconds` is without saving and loading."""

    at_s: float
    number: int
    seconds: float
    steps: int = 0
    samples: int = 0


@dataclass(frozen=True)
class Report:
    """What one worker did since its last report, and where it is now.

    `sequence` grows by one with each report of a process: one that comes twice counts once.
    `epochs_done` may have a fraction; `epochs_saved` is how much of it a checkpoint holds, None if
    the program does not say. `hears` is whether it stops by itself when it is asked to.
    """

    worker: int
    sequence: int
    version: int = VERSION
    generation: int = 0
    wait_s: float = 0.0
    hears: bool = True
    epochs_done: float = 0.0
    epochs_total: Optional[float] = None
    epochs_saved: Optional[float] = None
    steps_done: int = 0
    steps_total: Optional[int] = None
    steps: List[StepsRecord] = field(default_factory=list)
    epochs: List[EpochRecord] = field(default_factory=list)
    metrics: Dict[str, float] = field(default_factory=dict)
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    start_s: Optional[float] = None
    load_s: Optional[float] = None
    save_s: Optional[float] = None
    dropped: int = 0


@dataclass(frozen=True)
class Orders:
    """What the daemon wants. `stop` says why to stop at the next safe point, empty if not to;
    `insists_in_s` is when it will insist. `notes` are words for the job's own log."""

    stop: str = ""
    insists_in_s: Optional[float] = None
    notes: List[str] = field(default_factory=list)


def to_json(message: Any) -> Dict[str, Any]:
    return asdict(message)


def orders_from(raw: Any) -> Orders:
    """Whatever came, as far as it makes sense: an answer may be of a newer daemon, or of a proxy."""
    if not isinstance(raw, dict):
        return Orders()
    known = {each.name for each in fields(Orders)}
    found: Dict[str, Any] = {name: value for name, value in raw.items() if name in known}
    stop, insists, notes = (found.get(name) for name in ("stop", "insists_in_s", "notes"))
    return Orders(
        stop=stop if isinstance(stop, str) else "",
        insists_in_s=float(insists) if isinstance(insists, (int, float)) else None,
        notes=[each for each in notes if isinstance(each, str)] if isinstance(notes, list) else [],
    )
