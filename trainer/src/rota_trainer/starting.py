"""How a script begins a run, and what a fork makes of it."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import TYPE_CHECKING

from rota_trainer.keeping import Keeping
from rota_trainer.place import find_place, take_umask
from rota_trainer.run import Run

if TYPE_CHECKING:
    from pathlib import Path

_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def start(
    *,
    keep: int = 2,
    checkpoint_dir: str | Path | None = None,
    code: str | None = None,
) -> Run:
    """Begin a run: as a worker of rota, or alone.

    `keep` is how many checkpoints stay. `code` names the code that a checkpoint belongs to, instead
    of a hash of the main script.
    """
    place = find_place()
    take_umask(place)
    run = Run(place, Keeping(place, keep=keep, folder=checkpoint_dir, code=code))
    _runs.add(run)
    run.listen()
    atexit.register(run.close)
    return run


def _after_fork() -> None:
    for run in list(_runs):
        run.in_forked_child()


os.register_at_fork(after_in_child=_after_fork)
