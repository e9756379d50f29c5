"""`State`: saves and loads the complete state of a training script.

A stop in the middle of an epoch needs three things to resume exactly: the random states at the
start of the epoch (to draw the same order of samples again), the position, and the random states
at the stop (restored after the finished batches are skipped).
"""

from __future__ import annotations

import pickle
import platform
from pathlib import Path
from typing import Any, cast

import torch

from rota_trainer.run import Run
from rota_trainer.torch import components, rng
from rota_trainer.torch.agreement import any_worker, gather
from rota_trainer.torch.safe_load import allow_classes, classes_in, error_summary

FORMAT = 1


class State:
    """The components of a training: model, optimizer, scheduler, scaler, sampler, random generators
    and any object with `state_dict` and `load_state_dict`, plus the random states of the process.

    With a `run`, all workers of the process group stop at the same step, and an epoch that was
    interrupted resumes with the same samples in the same order.
    """

    def __init__(self, run: Run | None = None, **named: Any) -> None:
        self._parts = {
            name: components.unwrapped(part) for name, part in named.items() if part is not None
        }
        for name, part in self._parts.items():
            components.state_of(name, part)
        self._run = run
        self._at_start: dict[str, Any] | None = None
        self._of_all: list[dict[str, Any]] = []
        self._gathered_at = (-1, -1)
        if run is not None:
            run.agree = self._agree
            run.before_steps = self._capture_epoch_start

    def save(self, path: Path) -> None:
        saved = {
            "format": FORMAT,
            "made_by": {"torch": str(torch.__version__), "python": platform.python_version()},
            "parts": {name: components.state_of(name, part) for name, part in self._parts.items()},
            "random": self._random_of_all(),
        }
        torch.save(saved, path)

    def load(self, path: Path) -> None:
        """Restore everything. If the checkpoint does not fit, raise and change nothing."""
        saved = self._read(path)
        components.check(self._parts, saved["parts"])
        for name, part in self._parts.items():
            components.restore_component(part, saved["parts"][name])
        self._restore_random(saved["random"])

    # -- random states --------------------------------------------------------------------------

    def _capture_epoch_start(self) -> None:
        """The loader draws the order of samples when its iterator is made: the random states at
        this point are needed to draw the same order again."""
        self._at_start = rng.capture_states()

    def _agree(self, flag: bool) -> bool:
        """Agree with the other workers, and gather their random states where a save may follow (a
        stop, or the end of an epoch), because only worker 0 saves."""
        decision = any_worker(flag)
        if decision or self._position()[1] == 0:
            self._of_all = gather(self._own_random())
            self._gathered_at = self._position()
        return decision

    def _random_of_all(self) -> list[dict[str, Any]]:
        is_fresh = self._gathered_at == self._position()
        return [self._own_random(), *(self._of_all[1:] if is_fresh else [])]

    def _own_random(self) -> dict[str, Any]:
        return {"now": rng.capture_states(), "at_start": self._at_start}

    def _position(self) -> tuple[int, int]:
        return (self._run.epochs_done, self._run.steps_done) if self._run is not None else (0, 0)

    def _restore_random(self, of_all: list[dict[str, Any]]) -> None:
        run = self._run
        rank = run.environment.rank if run is not None else 0
        own = of_all[rank] if rank < len(of_all) else _derived(rank, of_all[0])
        if run is None or not run.steps_done or own["at_start"] is None:
            rng.restore_states(own["now"])
            return
        rng.restore_states(own["at_start"])
        run.before_steps = lambda: self._restart_epoch(run, own["at_start"])
        run.at_first_step(lambda: rng.restore_states(own["now"]))

    def _restart_epoch(self, run: Run, at_start: dict[str, Any]) -> None:
        rng.restore_states(at_start)
        self._at_start = at_start
        run.before_steps = self._capture_epoch_start

    # -- reading --------------------------------------------------------------------------------

    def _read(self, path: Path) -> dict[str, Any]:
        """Load a file without running code that it may contain: only tensors, plain values, and
        classes of this state's own components are allowed."""
        try:
            with allow_classes(self._classes()):
                saved: Any = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(
                f"{path} cannot be read by torch {torch.__version__}: {error_summary(error)}"
            ) from error
        if not _is_ours(saved):
            raise components.OtherStateError(f"{path} was not saved by this version of State")
        return saved

    def _classes(self) -> set[type]:
        return {
            kind
            for name, part in self._parts.items()
            for kind in classes_in(components.state_of(name, part))
        }


def _derived(rank: int, first: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if states is None else rng.derive_states(rank, states)
        for name, states in first.items()
    }


def _is_ours(saved: Any) -> bool:
    return isinstance(saved, dict) and cast("dict[str, Any]", saved).get("format") == FORMAT
