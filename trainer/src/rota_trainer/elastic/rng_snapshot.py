"""Captures the random states before every step, at low cost, to undo a step that fails."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import Any

from rota_trainer.torch import rng

KIND = "MT19937"
N_BYTES = (624 + 1) * 4
NOTHING_LEFT = 0


class RngSnapshot:
    """Reads numpy's state only when it has changed. Most steps do not draw from numpy's global
    generator, and reading its state is the slowest part."""

    def __init__(self) -> None:
        self._raw: bytes | None = None
        """The memory of numpy's generator when its state was read last."""
        self._numpy: tuple[Any, ...] = ()
        self._generator: Any = None
        self._address = 0

    def take(self) -> dict[str, Any]:
        states = rng.capture_without_numpy()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            states["numpy"] = self._of_numpy(numpy)
        return states

    def _of_numpy(self, numpy: Any) -> tuple[Any, ...]:
        raw = self._read_memory(numpy)
        if raw is None or raw != self._raw:
            self._numpy = rng.numpy_state(numpy)
            self._raw = raw if raw is not None and _is_complete(raw, self._numpy) else None
        return self._numpy

    def _read_memory(self, numpy: Any) -> bytes | None:
        """The memory of numpy's global generator: its words, then how many of them are used. None
        for another kind of generator, or a version of numpy that does not expose its address."""
        find = getattr(numpy.random, "get_bit_generator", None)
        generator: Any = find() if find is not None else None
        if type(generator).__name__ != KIND:
            return None
        if generator is not self._generator:
            self._generator, self._address = generator, generator.ctypes.state_address
        return ctypes.string_at(self._address, N_BYTES)


def _is_complete(raw: bytes, state: tuple[Any, ...]) -> bool:
    """Whether the memory is the complete state. It is not while one normal number of a pair is left
    over: that number is stored elsewhere, and drawing it does not change this memory."""
    _, words, n_used, left_over, *_ = state
    return left_over == NOTHING_LEFT and raw == array("I", [*words, n_used]).tobytes()
