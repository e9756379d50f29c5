"""All that a training script has to save, in one call each way."""

from __future__ import annotations

import contextlib
import pickle
import platform
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set

import torch

from rota_trainer.run import Run
from rota_trainer.torch import parts, randomness
from rota_trainer.torch.agreement import attach

FORMAT = 1


class State:
    """A model, its optimizer, scheduler, scaler, sampler, whatever else has `state_dict` and
    `load_state_dict`, generators of random numbers, and the random states of the process.

    With a `run`, stops are agreed on in the process group, and an epoch that was left in its
    middle goes on with the same samples in the same order.
    """

    def __init__(self, run: Optional[Run] = None, **named: Any) -> None:
        self._parts = {
            name: parts.unwrapped(part) for name, part in named.items() if part is not None
        }
        for name, part in self._parts.items():
            parts.state_of(name, part)
        self._run = run
        self._at_start: Optional[Dict[str, Any]] = None
        if run is not None:
            attach(run)
            run.before_steps(self._note_start)

    def save(self, path: Path) -> None:
        saved = {
            "format": FORMAT,
            "made_by": {"torch": torch.__version__, "python": platform.python_version()},
            "parts": {name: parts.state_of(name, part) for name, part in self._parts.items()},
            "random": randomness.take(),
            "random_at_start": self._at_start if self._is_mid_epoch else None,
        }
        torch.save(saved, path)

    def load(self, path: Path) -> None:
        saved = self._read(path)
        parts.check(self._parts, saved["parts"])
        for name, part in self._parts.items():
            parts.put_back(part, saved["parts"][name])
        self._put_back_random(saved["random"], saved["random_at_start"])

    @property
    def _is_mid_epoch(self) -> bool:
        return self._run is not None and self._run.position.step > 0

    def _note_start(self) -> None:
        """The loader draws the order of its samples when it begins: what it draws from is needed
        to draw the same order again."""
        self._at_start = randomness.take()

    def _put_back_random(self, now: Dict[str, Any], at_start: Optional[Dict[str, Any]]) -> None:
        rank = self._run.place.rank if self._run is not None else 0
        randomness.put_back_for(at_start or now, rank)
        if self._run is not None and at_start is not None:
            self._run.before_steps(lambda: randomness.put_back_for(at_start, rank))
            self._run.at_first_step(lambda: randomness.put_back_for(now, rank))

    def _read(self, path: Path) -> Dict[str, Any]:
        """Without running code that a file may hold: only tensors, plain values, and classes that
        the parts of this state hold themselves are made."""
        try:
            with _also_safe(self._classes()):
                saved = torch.load(path, map_location="cpu", weights_only=True)
        except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
            raise ValueError(
                f"{path} cannot be read by torch {torch.__version__}: {str(error).splitlines()[0]}"
            ) from error
        if not isinstance(saved, dict) or saved.get("format") != FORMAT:
            raise parts.OtherState(f"{path} was not saved by this version of State")
        return saved

    def _classes(self) -> Set[type]:
        return {
            kind
            for name, part in self._parts.items()
            for kind in _classes_in(parts.state_of(name, part))
        }


def _classes_in(value: Any) -> Iterator[type]:
    yield type(value)
    if isinstance(value, dict):
        for each in value.values():
            yield from _classes_in(each)
    elif isinstance(value, (list, tuple, set)):
        for each in value:
            yield from _classes_in(each)


def _also_safe(classes: Set[type]) -> contextlib.AbstractContextManager[Any]:
    if not hasattr(torch.serialization, "safe_globals"):
        return contextlib.nullcontext()
    own = [kind for kind in classes if kind.__module__ not in ("builtins", "torch")]
    return torch.serialization.safe_globals(own)
