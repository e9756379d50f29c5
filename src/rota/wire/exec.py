"""WebSocket messages of a command beside a worker, or of a connection to its port.

Binary messages carry data: the first byte is the stream (0 input, 1 output, 2 errors), and a
message of that byte alone ends the stream. Text messages are JSON. The first text message of the
client is an `ExecRequest` (for a command only), later ones are `TerminalSize`. Text messages of the
daemon are `ExecStatus`.

The client sends at most `WINDOW_BYTES` that the daemon has not acknowledged (`ExecStatus.taken`).
So the daemon never stops reading, and the two directions cannot deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.wire.daemon import Problem

INPUT, OUTPUT, ERRORS = 0, 1, 2
CHUNK_BYTES = 64 * 1024
WINDOW_BYTES = 256 * 1024
FRAME_BYTES_MAX = 1024**2


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """The command to run. Empty `command`: the user's shell. `columns` 0: no terminal."""

    command: list[str]
    rows: int = 0
    columns: int = 0
    terminal: str = "xterm"


@dataclass(frozen=True, slots=True)
class TerminalSize:
    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class ExecStatus:
    """The number of input bytes taken; in the last message, the exit code or the problem."""

    taken: int = 0
    exit_code: int | None = None
    reason: str = ""
    problem: Problem | None = None
