"""The messages between a worker and the daemon: reports, and orders in the responses.

A report is sent as JSON to `POST /v1/training/report`, at most once a second, with everything since
the last report. The daemon holds its response until it has an order or `wait_s` have passed (a long
poll), so that an order arrives immediately. Both sides ignore unknown fields and use defaults for
missing ones, so that either side may be older. Field names are part of the wire format.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, cast

from rota_trainer.reporting.limits import LONGEST_NAME, MOST_METRICS, MOST_RECORDS

__all__ = [
    "LONGEST_NAME",
    "MOST_METRICS",
    "MOST_RECORDS",
    "PATH",
    "VERSION",
    "EpochRecord",
    "Member",
    "Orders",
    "StepsRecord",
    "Switch",
    "TrainingReport",
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
    """Consecutive steps: the end of the last one, their total time, and the slowest one."""

    at_s: float
    count: int
    seconds: float
    slowest_s: float = 0.0
    samples: int = 0


@dataclass(frozen=True)
class EpochRecord:
    """A finished epoch. `number` counts from 1. `seconds` excludes saving and loading."""

    at_s: float
    number: int
    seconds: float
    steps: int = 0
    samples: int = 0


@dataclass(frozen=True)
class TrainingReport:
    """The progress of one worker since its last report, and its position now.

    `sequence` grows by one with each report of a process; a duplicate counts once. `epochs_done`
    may have a fraction; `epochs_saved` is how much of it a checkpoint holds, None if unknown.
    `hears` is whether the program stops by itself after a stop request.

    For jobs that are resized while they run: `generation` is the newest one whose first collective
    this worker has finished, -1 before the first. `address` is where this worker's store listens;
    it is empty until the worker is ready to join a generation. `identity` must be the same in all
    members. `global_step` counts the steps of all epochs. `pause_s` is how long the change to this
    generation interrupted training. `own_s` is the time of a step without the wait for other
    workers.
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
    """A worker of a generation: its number in the job, and the address of its store."""

    number: int
    address: str


@dataclass(frozen=True)
class Switch:
    """The order to join a generation. The rank of a member is its index in `members`; a worker that
    is not in the list leaves the job. `is_broken`: a member of the previous generation is gone, so
    its unfinished collectives must be aborted."""

    generation: int
    members: list[Member]
    is_broken: bool = False


@dataclass(frozen=True)
class Orders:
    """The orders for one worker. `stop` is the reason to stop at the next safe point, empty for no
    stop; `insists_in_s` is the time until rota stops the worker by force. `notes` are lines for the
    job's log. `switch` is the newest complete generation, if it is newer than the reported one.
    `refused` is the reason why a worker that is ready may not join."""

    stop: str = ""
    insists_in_s: float | None = None
    notes: list[str] = field(default_factory=list)
    switch: Switch | None = None
    refused: str = ""


def to_json(message: Any) -> dict[str, Any]:
    return asdict(message)


def orders_from(raw: Any) -> Orders:
    """Read a response. Invalid fields are ignored: it may come from a newer daemon or a proxy."""
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
    """Read a switch; None unless every member is valid, because a partial list is useless."""
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
