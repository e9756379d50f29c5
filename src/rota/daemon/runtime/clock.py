"""The clock of the daemon: wall time that jumps of the wall clock do not reach.

It advances with the time since boot, which also counts suspended time. So time limits, back-offs
and usage are right when somebody sets the wall clock, also while the daemon is down: the file of
the clock holds the last reading for the next daemon of the same boot. Meanwhile the clock follows
the wall clock, by at most one part in a hundred, so that the times that users see become right.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import structlog

from rota.config.atomic_file import replace_file
from rota.errors import os_error_message

log = structlog.get_logger()

FILE_NAME = "clock.json"
KEEP_S = 60.0
"""How often the clock is compared with the wall clock."""
MAX_RATE = 0.01
"""The most that the clock runs faster or slower to follow the wall clock."""
JUMP_S = 5.0
"""A larger change of the wall clock is logged."""
MAX_ERROR_S = 86400.0
"""A larger difference, found at a start, means that the older reading was wrong: for example, the
machine had booted in 1970."""
WRITE_S = 0.1
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
Read = Callable[[], float]


def boot_time_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    return BOOT_ID_FILE.read_text(encoding="ascii").strip()


@dataclass(frozen=True, slots=True)
class _Reading:
    """The clock showed `now_s` at `boot_s` after the boot."""

    boot_id: str
    boot_s: float
    now_s: float

    def at(self, boot_s: float, *, rate: float = 0.0) -> float:
        elapsed_s = boot_s - self.boot_s
        return self.now_s + elapsed_s + rate * min(max(0.0, elapsed_s), KEEP_S)


class DaemonClock:
    """Callable from any thread. Never goes back while the daemon runs."""

    def __init__(
        self,
        file: Path,
        *,
        wall: Read = time.time,
        boot: Read = boot_time_s,
        boot_id: Callable[[], str] = boot_id,
    ) -> None:
        self._file = file
        self._wall, self._boot = wall, boot
        start = _Reading(boot_id(), boot(), wall())
        kept = _read(file)
        if kept is not None and kept.boot_id == start.boot_id and kept.boot_s <= start.boot_s:
            ahead_s = kept.at(start.boot_s) - start.now_s
            if abs(ahead_s) <= MAX_ERROR_S:
                start = _Reading(start.boot_id, start.boot_s, kept.at(start.boot_s))
            else:
                log.warning("clock set to the wall clock", ahead_s=round(ahead_s, 1))
        self._line = (start, 0.0)
        """The newest reading, and how much faster than the boot time the clock runs since then."""
        self._difference_s = wall() - start.now_s
        self._write(start)

    def __call__(self) -> float:
        reading, rate = self._line
        return reading.at(self._boot(), rate=rate)

    async def run(self) -> None:
        """Follow the wall clock."""
        while True:
            await asyncio.sleep(KEEP_S)
            self.follow()

    def follow(self) -> None:
        """Run towards the wall clock until the next call, and keep the reading."""
        before, rate = self._line
        boot_s = self._boot()
        now = _Reading(before.boot_id, boot_s, before.at(boot_s, rate=rate))
        difference_s = self._wall() - now.now_s
        jump_s = difference_s - self._difference_s
        if abs(jump_s) > JUMP_S:
            log.warning("wall clock was set", by_s=round(jump_s, 1))
        self._difference_s = difference_s
        self._line = (now, min(MAX_RATE, max(-MAX_RATE, difference_s / KEEP_S)))
        if abs(self._written.at(boot_s) - now.now_s) > WRITE_S:
            self._write(now)

    def _write(self, reading: _Reading) -> None:
        """A clock that cannot be kept starts from the wall clock next time."""
        self._written = reading
        try:
            replace_file(self._file, json.dumps(asdict(reading)))
        except OSError as error:
            log.warning("clock not kept", error=os_error_message(error))


def _read(file: Path) -> _Reading | None:
    try:
        value = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    match value:
        case {"boot_id": str(boot), "boot_s": float(boot_s), "now_s": float(now_s)} if (
            math.isfinite(boot_s) and math.isfinite(now_s)
        ):
            return _Reading(boot, boot_s, now_s)
        case _:
            return None
