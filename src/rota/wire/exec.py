"""What is said over the WebSocket of a command beside a worker, or of a connection to its port.

Binary messages carry bytes: the first byte says which stream they belong to (as in a shell: 0 in,
1 out, 2 errors), and a message of that byte alone ends the stream. Text messages are JSON:
the client's first one is an `Entry` (of a command only), those after it a `Size`; the daemon's are
a `Note`.

The client keeps at most `WINDOW_BYTES` on the way that the daemon has not noted as taken. So the
daemon can always read on, and two full directions never wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.wire.box import Problem

INPUT, OUTPUT, ERRORS = 0, 1, 2
CHUNK_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024
FRAME_BYTES_MAX = 1024**2


@dataclass(frozen=True, slots=True)
class Entry:
    """What to run: without words the user's shell, without columns not on a terminal."""

    command: list[str]
    rows: int = 0
    columns: int = 0
    terminal: str = "xterm"


@dataclass(frozen=True, slots=True)
class Size:
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Note:
    """How many bytes of input were taken; or, last, how it ended or what went wrong."""

    taken: int = 0
    exit_code: int | None = None
    reason: str = ""
    problem: Problem | None = None
