"""What a worker and the daemon say to each other: reports go out, orders come back.

A report is sent as JSON to `POST /v1/training/report`, at most once a second, with all that
happened since the last one. The daemon holds its answer until there is an order or `wait_s` have
passed, so that an order reaches a worker at once on the one connection that it keeps. Both sides
ignore fields that they do not know and fill in those that are missing, so that either may be older.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, cast

from rota_trainer.bounds import LONGEST_NAME, MOST_METRICS, MOST_RECORDS

__all__ = [
    "LONGEST_NAME",
    "MOST_METRICS",
    "MOST_RECORDS",
    "PATH",
    "VERSION",
    "EpochRecord",
    "Member",
    "Orders",
    "Report",
    "StepsRecord",
    "Switch",
    "orders_from",
    "switch_from",
    "to_json",
]

VERSION = 1
PATH = "/v1/training/report"
MOST_NOTES = 16
LONGEST_NOTE = 1000
LONGEST_WAIT_S = 1e9
MOST_MEMBERS = 4096
LONGEST_ADDRESS = 300


@dataclass(frozen=True)
class StepsRecord:
    """Some steps in a row: when the last ended, how long they took together, and the slowest."""

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

    Of a job that is resized while it runs: `generation` is the newest one whose first collective
    this worker has finished, -1 before the first; `address` is where the others of a generation
    can meet, and not empty when the worker is ready to join one; `identity` has to be the same in
    all of them; `global_step` counts the steps of all epochs; `pause_s` is how long the change to
    this generation kept it from training; `own_s` is what a step takes it without the wait for the
    others.
    """

    worker: int
    sequence: int
    version: int = VERSION
    generation: int = 0
    wait_s: float = 0.0
    hears: bool = True
    epochs_done: float = 0.0
    epochs_total: float | None = None
    epochs_saved: float | None = None
    steps_done: int = 0
    steps_total: int | None = None
    steps: list[StepsRecord] = field(default_factory=list)
    epochs: list[EpochRecord] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    start_s: float | None = None
    load_s: float | None = None
    save_s: float | None = None
    dropped: int = 0
    address: str = ""
    identity: str = ""
    global_step: int = 0
    pause_s: float | None = None
    own_s: float | None = None


@dataclass(frozen=True)
class Member:
    """A worker of a generation, by its number in the job, and where it can be met."""

    number: int
    address: str


@dataclass(frozen=True)
class Switch:
    """Who trains together from this generation on; ranks are by order. Whoever is not among them
    leaves. `is_broken`: a member of the one before is gone, so that nobody need wait for it."""

    generation: int
    members: list[Member]
    is_broken: bool = False


@dataclass(frozen=True)
class Orders:
    """What the daemon wants. `stop` says why to stop at the next safe point, empty if not to;
    `insists_in_s` is when it will insist. `notes` are words for the job's own log. `switch` is the
    newest generation that is complete, as long as it is newer than what the worker reported;
    `refused` says why a worker that is ready may not join."""

    stop: str = ""
    insists_in_s: float | None = None
    notes: list[str] = field(default_factory=list)
    switch: Switch | None = None
    refused: str = ""


def to_json(message: Any) -> dict[str, Any]:
    return asdict(message)


def orders_from(raw: Any) -> Orders:
    """Whatever came, as far as it makes sense: it may be of a newer daemon, or of a proxy."""
    if not isinstance(raw, dict):
        return Orders()
    found = cast("dict[str, Any]", raw)
    stop, insists, notes = (found.get(name) for name in ("stop", "insists_in_s", "notes"))
    refused = found.get("refused")
    is_time = isinstance(insists, (int, float)) and 0 <= insists <= LONGEST_WAIT_S
    return Orders(
        stop=stop if isinstance(stop, str) else "",
        insists_in_s=float(cast(float, insists)) if is_time else None,
        notes=_texts(notes),
        switch=switch_from(found.get("switch")),
        refused=refused[:LONGEST_NOTE] if isinstance(refused, str) else "",
    )


def switch_from(raw: Any) -> Switch | None:
    """None unless every part of it makes sense: half a membership is none."""
    if not isinstance(raw, dict):
        return None
    found = cast("dict[str, Any]", raw)
    generation, members = found.get("generation"), found.get("members")
    if not _is_count(generation) or not isinstance(members, list):
        return None
    listed = [_member_from(each) for each in cast("list[Any]", members)[: MOST_MEMBERS + 1]]
    known = [each for each in listed if each is not None]
    is_whole = 0 < len(known) == len({each.number for each in known}) == len(listed)
    if not is_whole or len(listed) > MOST_MEMBERS:
        return None
    return Switch(cast(int, generation), known, found.get("is_broken") is True)


def _member_from(raw: Any) -> Member | None:
    if not isinstance(raw, dict):
        return None
    found = cast("dict[str, Any]", raw)
    number, address = found.get("number"), found.get("address")
    if not _is_count(number) or not isinstance(address, str):
        return None
    host, _, port = address.rpartition(":")
    is_address = host and port.isdecimal() and len(address) <= LONGEST_ADDRESS
    return Member(cast(int, number), address) if is_address and 0 < int(port) < 65536 else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _texts(raw: Any) -> list[str]:
    if not isinstance(raw, list):
        return []
    notes = cast("list[Any]", raw)[:MOST_NOTES]
    return [each[:LONGEST_NOTE] for each in notes if isinstance(each, str)]
