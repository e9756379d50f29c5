"""A GPU driver for daemons in their own processes: GPUs and failures come from a file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.tidy.tree import ROOT

MODULE = """
import json, pathlib, sys
sys.path.append({root!r})
from tests.unit.engines import fake_nvml

STATE = pathlib.Path({state!r})
init, count = fake_nvml.nvmlInit, fake_nvml.nvmlDeviceGetCount

def load():
    state = json.loads(STATE.read_text())
    fake_nvml.cards = [fake_nvml.Card(uuid) for uuid in state["gpus"]]
    fake_nvml.init_error = fake_nvml.count_error = state["error"]

def nvmlInit():
    load()
    init()

def nvmlDeviceGetCount():
    load()
    return count()

fake_nvml.nvmlInit, fake_nvml.nvmlDeviceGetCount = nvmlInit, nvmlDeviceGetCount
sys.modules["pynvml"] = fake_nvml
"""


class GpuDriver:
    """Put `python_path` first in the PYTHONPATH of a daemon."""

    def __init__(self, folder: Path, gpus: Sequence[str]) -> None:
        self._state = folder / "driver.json"
        modules = folder / "driver"
        modules.mkdir()
        text = MODULE.format(root=str(ROOT), state=str(self._state))
        (modules / "pynvml.py").write_text(text)
        self.python_path = f"{modules}:{ROOT / 'src'}:{ROOT / 'trainer/src'}"
        self.show(gpus)

    def show(self, gpus: Sequence[str], *, error: int = 0) -> None:
        """The driver reports these GPUs from now on, or fails."""
        partial = self._state.with_suffix(".partial")
        partial.write_text(json.dumps({"gpus": list(gpus), "error": error}))
        partial.replace(self._state)
