"""The random states of a process: of Python, of numpy where it is loaded, of torch and its GPUs.

They are kept as plain values and tensors, so that they can be read back without unpickling code.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch


def take() -> dict[str, Any]:
    states = take_quickly()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        states["numpy"] = numpy_state(numpy)
    return states


def take_quickly() -> dict[str, Any]:
    """Without numpy's, which takes longer than all others."""
    states: dict[str, Any] = {"python": random.getstate(), "torch": torch.get_rng_state()}
    if torch.cuda.is_initialized():
        states["cuda"] = torch.cuda.get_rng_state_all()
    return states


def numpy_state(numpy: Any) -> tuple[Any, ...]:
    """Of the generator that all share: its kind, its words, how many of them are used up, whether
    a normal number is left over from a pair, and that number."""
    kind, words, *rest = numpy.random.get_state()
    return (str(kind), words.tolist(), *rest)


def put_back(states: dict[str, Any]) -> None:
    """On fewer GPUs than there were, as many states as there are GPUs."""
    random.setstate(states["python"])
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy as np

        kind, words, *rest = states["numpy"]
        # The old global state, which scripts and libraries still draw from.
        np.random.set_state((kind, np.array(words, dtype=np.uint32), *rest))  # noqa: NPY002
    if "cuda" in states and torch.cuda.is_available():
        for index in range(min(len(states["cuda"]), torch.cuda.device_count())):
            torch.cuda.set_rng_state(states["cuda"][index], index)


def made_for(rank: int, states: dict[str, Any]) -> dict[str, Any]:
    """States for a worker whose own were not saved, made from those of worker 0: the same each
    time, and others for each worker."""
    words = states["torch"].numpy().tobytes() + str(rank).encode()
    seed = int.from_bytes(hashlib.sha256(words).digest()[:4], "big")
    before = take()
    random.seed(seed)
    untyped: Any = torch
    untyped.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    made = take()
    put_back(before)
    return made
