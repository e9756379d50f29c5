"""The random states as a step finds them. Taken before every step, so that it has to be cheap."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import Any

from rota_trainer.torch import randomness

KIND = "MT19937"
N_BYTES = (624 + 1) * 4
NOTHING_LEFT = 0


class Chance:
    """Asks numpy for its state only when that has changed. Most steps do not draw from the
    generator that all of numpy shares, and to ask it takes longer than anything else here."""

    def __init__(self) -> None:
        self._raw: bytes | None = None
        """What the state looked like in memory when it was asked for last."""
        self._numpy: tuple[Any, ...] = ()
        self._generator: Any = None
        self._address = 0

    def take(self) -> dict[str, Any]:
        states = randomness.take_quickly()
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            states["numpy"] = self._of_numpy(numpy)
        return states

    def _of_numpy(self, numpy: Any) -> tuple[Any, ...]:
        raw = self._look(numpy)
        if raw is None or raw != self._raw:
            self._numpy = randomness.numpy_state(numpy)
            self._raw = raw if raw is not None and _is_told_by(raw, self._numpy) else None
        return self._numpy

    def _look(self, numpy: Any) -> bytes | None:
        """The memory of the shared generator: its words, then how many are used up. None where it
        is not the usual one, or does not say where it is."""
        find = getattr(numpy.random, "get_bit_generator", None)
        generator: Any = find() if find is not None else None
        if type(generator).__name__ != KIND:
            return None
        if generator is not self._generator:
            self._generator, self._address = generator, generator.ctypes.state_address
        return ctypes.string_at(self._address, N_BYTES)


def _is_told_by(raw: bytes, state: tuple[Any, ...]) -> bool:
    """Whether the memory is all there is to know. It is not while a normal number is left over
    from a pair: that is kept elsewhere, and taking it changes nothing here."""
    _, words, n_used, left_over, *_ = state
    return left_over == NOTHING_LEFT and raw == array("I", [*words, n_used]).tobytes()
