"""Moving a job from one daemon to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from rota.wire.jobs import JobRequest

if TYPE_CHECKING:
    from rota.wire.manifest import Manifest


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """Jobs that go to another daemon if they still wait `after` a time, such as "10m". `to` is what
    their owner calls it. The token is its owner's there, and is told to nobody else."""

    jobs: list[str]
    to: str
    url: str
    token: str = field(default="", repr=False)
    after: str = "0"


@dataclass(frozen=True, slots=True)
class Code:
    """What was shipped with a job. `open` gives a content by its hash, as a file."""

    manifest: Manifest
    open: Callable[[str], BinaryIO]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A job on its way. However often it is handed over under its `key`, it is one job there."""

    request: JobRequest
    key: str
    origin: str
    code: Code | None = None


def key_of(job_id: str, submitted_s: float) -> str:
    """No other job on any daemon has it."""
    return f"moved-{job_id}-{submitted_s!r}"


MOVED = "moved to "


def moved(to: str, job_id: str) -> str:
    """The reason with which a job ends that goes on elsewhere."""
    return f"{MOVED}{to} as {job_id}"
