"""The members of a generation meet at the store of the first, and say how far they are."""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import Any, Callable

import torch.distributed as dist

WAIT_S = 0.2


class GivenUpError(Exception):
    """There is a newer generation, or another reason not to wait for this one any longer."""


def meet(
    store: Any, numbers: list[int], *, own: int, step: int, is_over: Callable[[], bool]
) -> list[int]:
    """How many steps each member has done, by rank. Waits until all have come; `is_over` is asked
    again and again whether to go on. Raises GivenUpError, or RuntimeError without a store."""
    store.set(f"in/{own}", str(step))
    keys = [f"in/{number}" for number in numbers]
    while not _have_come(store, keys):
        if is_over():
            raise GivenUpError
    return [int(store.get(key)) for key in keys]


def _have_come(store: Any, keys: list[str]) -> bool:
    with contextlib.suppress(dist.DistStoreError):
        store.wait(keys, timedelta(seconds=WAIT_S))
        return True
    return False
