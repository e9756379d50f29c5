"""Measures the memory of the process tree and of its GPUs. Used by the reporter thread."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

PROBE_EVERY_S = 5.0
MOST_PROCESSES = 512


class MemoryProbe:
    def __init__(self) -> None:
        self.tree_bytes = 0
        self.gpu_bytes = 0
        self._measured_s = float("-inf")

    def measure(self) -> None:
        """Measure again if the last measurement is older than `PROBE_EVERY_S`."""
        now_s = time.monotonic()
        if now_s - self._measured_s >= PROBE_EVERY_S:
            self._measured_s = now_s
            self.tree_bytes = tree_bytes(os.getpid())
            self.gpu_bytes = gpu_bytes()


def tree_bytes(root: int) -> int:
    """The resident memory of a process and its descendants; shared pages count for each process."""
    total, left, seen = 0, [root], 0
    while left and seen < MOST_PROCESSES:
        process = left.pop()
        seen += 1
        total += _resident_bytes(process)
        left += _children(process)
    return total


def gpu_bytes() -> int:
    """The GPU memory that torch has reserved; 0 if the script has not imported torch."""
    torch: Any = sys.modules.get("torch")
    try:
        if torch is None or not torch.cuda.is_initialized():
            return 0
        return sum(torch.cuda.memory_reserved(n) for n in range(torch.cuda.device_count()))
    except Exception:  # noqa: BLE001 - torch may be partly imported, or the driver may fail
        return 0


def _resident_bytes(process: int) -> int:
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _children(process: int) -> list[int]:
    found: list[int] = []
    try:
        for task in Path(f"/proc/{process}/task").iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except (OSError, ValueError):
        pass
    return found
