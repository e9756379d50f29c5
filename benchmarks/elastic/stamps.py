"""What a training script writes down while it runs, for `benchmarks.resizes.journal` to read."""

from __future__ import annotations

import os
import time
from pathlib import Path

STEP_S = 0.05
"""How long a step takes besides what the model costs."""


class Stamps:
    """Lines of one file that all workers of a job append to: time, kind, numbers."""

    def __init__(self) -> None:
        self._file = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def put(self, kind: str, *numbers: float) -> None:
        words = " ".join(f"{number:.6f}" for number in numbers)
        os.write(self._file, f"{time.time():.6f} {kind} {words}\n".encode())


def began_s() -> float:
    """When this process was started: before anything was imported."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    since_boot_s = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
    up_s = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (up_s - since_boot_s)
