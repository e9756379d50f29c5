"""All that a training script has to save, in one call each way."""

from __future__ import annotations

import pickle
import platform
from pathlib import Path
from typing import Any, cast

import torch

from rota_trainer.run import Run
from rota_trainer.torch import parts, randomness
from rota_trainer.torch.agreement import any_worker, gathered
from rota_trainer.torch.reading import also_safe, classes_in, essence

FORMAT = 1


class State:
    """A model, its optimizer, scheduler, scaler, sampler, whatever else has `state_dict` and
    `load_state_dict`, generators of random numbers, and the random states of the process.

    With a `run`, stops are agreed on in the process group, and an epoch that was left in its
    middle goes on with the same samples in the same order.
    """

    def __init__(self, run: Run | None = None, **named: Any) -> None:
        self._parts = {
            name: parts.unwrapped(part) for name, part in named.items() if part is not None
        }
        for name, part in self._parts.items():
            parts.state_of(name, part)
        self._run = run
        self._at_start: dict[str, Any] | None = None
        self._of_all: list[dict[str, Any]] = []
        self._gathered_at = (-1, -1)
        if run is not None:
            run.agree = self._agree
            run.before_steps = self._note_start

    def save(self, path: Path) -> None:
        saved = {
            "format": FORMAT,
            "made_by": {"torch": str(torch.__version__), "python": platform.python_version()},
            "parts": {name: parts.state_of(name, part) for name, part in self._parts.items()},
            "random": self._random_of_all(),
        }
        torch.save(saved, path)

    def load(self, path: Path) -> None:
        """Put everything back, or refuse with everything as it was."""
        saved = self._read(path)
        parts.check(self._parts, saved["parts"])
        for name, part in self._parts.items():
            parts.put_back(part, saved["parts"][name])
        self._put_back_random(saved["random"])

    # -- random states --------------------------------------------------------------------------

    def _note_start(self) -> None:
        """The loader draws the order of its samples when it begins: what it draws from is needed
        to draw the same order again."""
        self._at_start = randomness.take()

    def _agree(self, flag: bool) -> bool:
        """Only worker 0 saves, so it needs the others' random states before each save: the ends
        of epochs, and stops."""
        decision = any_worker(flag)
        if decision or self._position()[1] == 0:
            self._of_all = gathered(self._own_random())
            self._gathered_at = self._position()
        return decision

    def _random_of_all(self) -> list[dict[str, Any]]:
        is_fresh = self._gathered_at == self._position()
        return [self._own_random(), *(self._of_all[1:] if is_fresh else [])]

    def _own_random(self) -> dict[str, Any]:
        return {"now": randomness.take(), "at_start": self._at_start}

    def _position(self) -> tuple[int, int]:
        return (self._run.epochs_done, self._run.steps_done) if self._run is not None else (0, 0)

    def _put_back_random(self, of_all: list[dict[str, Any]]) -> None:
        run = self._run
        rank = run.place.rank if run is not None else 0
        own = of_all[rank] if rank < len(of_all) else _made_for(rank, of_all[0])
        if run is None or not run.steps_done or own["at_start"] is None:
            randomness.put_back(own["now"])
            return
        randomness.put_back(own["at_start"])
        run.before_steps = lambda: self._start_again(run, own["at_start"])
        run.at_first_step(lambda: randomness.put_back(own["now"]))

    def _start_again(self, run: Run, at_start: dict[str, Any]) -> None:
        randomness.put_back(at_start)
        self._at_start = at_start
        run.before_steps = self._note_start

    # -- reading --------------------------------------------------------------------------------

    def _read(self, path: Path) -> dict[str, Any]:
        """Without running code that a file may hold: only tensors, plain values, and classes that
        the parts of this state hold themselves are made."""
        try:
            with also_safe(self._classes()):
                saved: Any = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(
                f"{path} cannot be read by torch {torch.__version__}: {essence(error)}"
            ) from error
        if not _is_ours(saved):
            raise parts.OtherStateError(f"{path} was not saved by this version of State")
        return saved

    def _classes(self) -> set[type]:
        return {
            kind
            for name, part in self._parts.items()
            for kind in classes_in(parts.state_of(name, part))
        }


def _made_for(rank: int, first: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if states is None else randomness.made_for(rank, states)
        for name, states in first.items()
    }


def _is_ours(saved: Any) -> bool:
    return isinstance(saved, dict) and cast("dict[str, Any]", saved).get("format") == FORMAT
