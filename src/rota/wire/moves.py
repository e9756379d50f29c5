"""Messages and values for moving a job from one daemon to another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO

from rota.wire.job_request import JobRequest

if TYPE_CHECKING:
    from rota.wire.manifest import SnapshotManifest


MOVED_PREFIX = "moved to "


@dataclass(frozen=True, slots=True)
class MoveRequest:
    """Jobs that move to another daemon if they are still queued `after` a time such as "10m". `to`
    is the owner's name of that daemon. `token` is the owner's token there; it is a secret and never
    appears in a response. `allows_plain_http`: the token may go to a `http://` URL."""

    jobs: list[str]
    to: str
    url: str
    token: str = field(default="", repr=False)
    after: str = "0"
    allows_plain_http: bool = False


@dataclass(frozen=True, slots=True)
class ShippedCode:
    """The shipped code of a job. `open` returns a blob by its hash, as a file."""

    manifest: SnapshotManifest
    open: Callable[[str], BinaryIO]


@dataclass(frozen=True, slots=True)
class JobTransfer:
    """A job that moves to another daemon. `key` is the idempotency key: repeated transfers create
    one job at the target."""

    request: JobRequest
    key: str
    origin: str
    code: ShippedCode | None = None


def move_key(job_id: str, submitted_s: float) -> str:
    """Return an idempotency key that no other job on any daemon has."""
    return f"moved-{job_id}-{submitted_s!r}"


def moved_reason(to: str, job_id: str) -> str:
    """Return the end reason of a job that continues on another daemon."""
    return f"{MOVED_PREFIX}{to} as {job_id}"
