"""Writes time stamps of a training script, which `benchmarks.elastic.journal` reads."""

from __future__ import annotations

import os
import time
from pathlib import Path

STEP_S = 0.05
"""How long a step takes besides what the model costs."""


class Stamps:
    """Appends lines to a file that all workers of a job share: time, kind, numbers."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def put(self, kind: str, *numbers: float) -> None:
        words = " ".join(f"{number:.6f}" for number in numbers)
        os.write(self._file, f"{time.time():.6f} {kind} {words}\n".encode())


def began_s() -> float:
    """Start time of this process, before any import."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (up_s - since_boot_s)
