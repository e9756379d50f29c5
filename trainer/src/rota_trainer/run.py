"""A training run as its script sees it: epochs, steps, metrics, safe points, checkpoints."""

from __future__ import annotations

import atexit
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, Optional, TypeVar

from rota_trainer.checkpoints import Checkpoints, Position
from rota_trainer.messages import EpochRecord
from rota_trainer.place import Place, find_place
from rota_trainer.reporter import Reporter
from rota_trainer.stops import Stopped
from rota_trainer.tally import Tally

T = TypeVar("T")
Saves = Callable[[Path], object]
Loads = Callable[[Path], object]


def start(*, keep: int = 2, checkpoint_dir: Optional[str] = None) -> Run:
    """Begin a run: as a worker of rota, or alone. `keep` is how many checkpoints stay."""
    place = find_place()
    run = Run(place, Checkpoints(place, keep=keep, folder=checkpoint_dir))
    atexit.register(run.close)
    return run


class Run:
    def __init__(self, place: Place, checkpoints: Checkpoints) -> None:
        self.place = place
        self.agree: Callable[[bool], bool] = bool
        """Whether any worker wants something, so that all do the same. `rota_trainer.torch` asks
        the process group; a run of one worker asks nobody."""
        self._checkpoints = checkpoints
        self._tally = Tally()
        self._reporter = Reporter(place, self._tally)
        self._position = Position()
        self._total: Optional[int] = None
        self._at_first_step: Optional[Callable[[], object]] = None
        self._in_steps = False
        self._samples = 0
        self._mark_s = time.perf_counter()
        if place.url:
            self._reporter.start()

    # -- where it is ----------------------------------------------------------------------------

    @property
    def epochs_done(self) -> int:
        return self._position.epoch

    @property
    def should_stop(self) -> bool:
        """Rota wants the GPUs back: save and end soon. `epochs` and `steps` do so by themselves."""
        return bool(self._reporter.orders.stop)

    @property
    def checkpoint_dir(self) -> Path:
        return self._checkpoints.folder

    # -- the loop -------------------------------------------------------------------------------

    def epochs(
        self, total: int, *, done: Optional[int] = None, save: Optional[Saves] = None
    ) -> Iterator[int]:
        """Epochs that are left, counted from 0; each end is a safe point, where `save` is called.
        `done` is where to go on for a script that restores by its own means."""
        if done is not None:
            self._position = Position(done)
        self._total = total
        self._tally.set(epochs_total=float(total))
        while self._position.epoch < total:
            epoch = self._position.epoch
            began_s = self._mark_s = time.perf_counter()
            self._samples, self._saving_s = 0, 0.0
            n_before = self._position.step
            self._where()
            yield epoch
            seconds = time.perf_counter() - began_s - self._saving_s
            n_steps = self._position.step - n_before
            if self._position.epoch == epoch:
                self._position = Position(epoch + 1)
            if not n_before:
                # An epoch that began in an earlier attempt says nothing about how long one takes.
                self._tally.epoch(
                    EpochRecord(time.time(), epoch + 1, seconds, n_steps, self._samples)
                )
            self._where()
            if save is not None:
                self.save(save)
            if epoch + 1 < total and self.agree(self.should_stop):
                raise Stopped(self._reporter.orders.stop)

    def steps(self, loader: Iterable[T], *, save: Optional[Saves] = None) -> Iterator[T]:
        """The batches of this epoch that are left. With `save`, each step is a safe point."""
        n_done = self._position.step
        try:
            self._tally.set(steps_total=len(loader))  # type: ignore[arg-type]
        except TypeError:
            self._tally.set(steps_total=None)
        self._in_steps = True
        try:
            for index, batch in enumerate(loader):
                if index < n_done:
                    continue
                if self._at_first_step is not None:
                    self._at_first_step()
                    self._at_first_step = None
                    self._mark_s = time.perf_counter()
                yield batch
                self.step(_n_samples(batch), save=save)
        finally:
            self._in_steps = False

    def step(self, samples: int = 0, *, save: Optional[Saves] = None) -> None:
        """A step is done. With `save`, it is a safe point."""
        now_s = time.perf_counter()
        self._tally.step(now_s - self._mark_s, samples)
        self._mark_s = now_s
        self._samples += samples
        self._position = self._position.after_step()
        self._where()
        if save is not None and not self._is_last_epoch and self.agree(self.should_stop):
            self.save(save, position=self._position)
            raise Stopped(self._reporter.orders.stop)

    def report(self, **metrics: Any) -> None:
        """The newest loss, accuracy, or whatever is worth seeing."""
        self._tally.metrics(metrics)
