"""Captures and restores the random states of a process: Python, numpy if imported, torch, GPUs.

The states are plain values and tensors, so that they can be loaded without unpickling code.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch


def capture_states() -> dict[str, Any]:
    states = capture_without_numpy()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = numpy_state(numpy)
    return states


def capture_without_numpy() -> dict[str, Any]:
    """All states except numpy's, which takes longer than all others."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def numpy_state(numpy: Any) -> tuple[Any, ...]:
    """The state of numpy's global generator: its kind, its words, how many of them are used, and
    whether one normal number of a pair is left over, with that number."""
    kind, words, *rest = numpy.random.get_state()
    return (str(kind), words.tolist(), *rest)


def restore_states(states: dict[str, Any]) -> None:
    """Restore the states. If there are fewer GPUs now, only the states of these are used."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy as np

        kind, words, *rest = states["numpy"]
        # The legacy global generator: scripts and libraries still use it.
        np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))  # noqa: NPY002
    if "cuda" in states and torch.cuda.is_available():
        for index in range(min(len(states["cuda"]), torch.cuda.device_count())):
            torch.cuda.set_rng_state(states["cuda"][index], index)


def derive_states(rank: int, states: dict[str, Any]) -> dict[str, Any]:
    """States for a worker that has no saved ones, derived from those of worker 0: the same ones
    each time, and different ones for each rank."""
    words = states["torch"].numpy().tobytes() + str(rank).encode()
    seed = int.from_bytes(hashlib.sha256(words).digest()[:4], "big")
    before = capture_states()
    random.seed(seed)
    untyped: Any = torch
    untyped.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    derived = capture_states()
    restore_states(before)
    return derived
