"""A wall clock that a test can set, for a real daemon: a small library that LD_PRELOAD loads.

libfaketime is of no use here: it lets every `time.sleep` of Python fail with EINVAL.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("wall_clock.c")
HOUR_S = 3600


def has_compiler() -> bool:
    return shutil.which("gcc") is not None


class WallClock:
    """The clock of all processes that have `environment`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "wall"
        self._library = folder / "wall_clock.so"
        command = ["gcc", "-shared", "-fPIC", "-o", str(self._library), str(SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self.shift(0)

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "WALL_CLOCK_FILE": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Let the clock be off by so many seconds."""
        self._file.write_text(str(seconds))
