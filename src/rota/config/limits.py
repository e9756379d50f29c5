"""The limits of one user, as keys of the configuration.

Each limit is checked where the resource is handed out, and only against the use of that user, with
all their tokens: a user at a limit affects no other user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rota.config.keys import Key
from rota.config.parsers import size, whole

GIB = 2**30
MOST = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class UserLimits:
    """How much of each resource of the daemon one user may use."""

    max_queued_jobs: Annotated[
        int, Key(whole(1, MOST), "N", "Jobs that wait in the queue or are held.")
    ] = 10_000
    max_cpu_jobs: Annotated[
        int,
        Key(
            whole(0, MOST),
            "N",
            "Jobs without GPUs that run at once; more of them wait (default: 16 for each CPU).",
        ),
    ] = 0
    max_request_bytes: Annotated[
        int,
        Key(
            size,
            "SIZE",
            "Stored requests of jobs that have not been deleted. The jobs of an array share one.",
        ),
    ] = GIB
    max_shipped_bytes: Annotated[
        int, Key(size, "SIZE", "Shipped folders: their files, and the copies that jobs work in.")
    ] = 20 * GIB
    max_shipped_files: Annotated[
        int, Key(whole(1, 1_000_000_000), "N", "Files and folders in shipped folders.")
    ] = 500_000
    max_tokens: Annotated[int, Key(whole(1, MOST), "N", "Valid tokens.")] = 100
    max_streams: Annotated[
        int, Key(whole(1, MOST), "N", "Open streams of logs, events and files.")
    ] = 200
    max_exec_sessions: Annotated[
        int, Key(whole(1, MOST), "N", "Open commands of `rota exec` and `rota shell`.")
    ] = 32
    max_forwards: Annotated[
        int, Key(whole(1, MOST), "N", "Open connections through `rota port-forward`.")
    ] = 256
    max_connections: Annotated[
        int,
        Key(
            whole(1, MOST),
            "N",
            "Open connections to the daemon; above it, the one that is idle for longest is closed.",
        ),
    ] = 1000
    max_requests_per_s: Annotated[
        int,
        Key(
            whole(1, MOST),
            "N",
            "Requests in a second; more of them wait for up to 5 seconds, then they are refused."
            " The reports of each job count apart.",
        ),
    ] = 1000
    max_request_cpu: Annotated[
        int,
        Key(
            whole(1, 100),
            "PERCENT",
            "Share of the daemon's CPU time for requests while other people send requests, too.",
        ),
    ] = 50


DEFAULT_LIMITS = UserLimits()
