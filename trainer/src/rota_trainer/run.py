"""A training run as its script sees it: epochs, steps, metrics, safe points, checkpoints."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from rota_trainer.keeping import Keeping
from rota_trainer.place import Place
from rota_trainer.position import Position
from rota_trainer.reporter import Reporter
from rota_trainer.say import say
from rota_trainer.signals import Insistence
from rota_trainer.stops import Stopped
from rota_trainer.tally import Tally
from rota_trainer.values import as_numbers, n_samples, n_steps

if TYPE_CHECKING:
    from pathlib import Path

    from rota_trainer.following import Following

    Saves = Callable[[Path], object]
    Loads = Callable[[Path], object]

T = TypeVar("T")


class Run:
    """Belongs to the thread that trains; `report` and `should_stop` may be used in any."""

    def __init__(self, place: Place, keeping: Keeping) -> None:
        self.place = place
        self.agree: Callable[[bool], bool] = bool
        """Whether any worker wants something, so that all do the same. `rota_trainer.torch` asks
        the process group; a run of one worker asks nobody."""
        self.before_steps: Callable[[], object] | None = None
        """Called each time before `steps` makes its iterator, which may draw random numbers."""
        self.keeping = keeping
        self.tally = Tally(place.epochs_done, place.epochs_total)
        self.reporter = Reporter(place, self.tally)
        self._insistence = Insistence(self._stop_outside)
        self._total: int | None = None
        self._at_first_step: Callable[[], object] | None = None
        self._n_to_skip = 0
        self._n_steps_before = 0
        self._is_looping = self._is_in_epoch = self._is_in_steps = self._is_saving = False
        self._samples = 0
        self._began_s = self.mark_s = time.perf_counter()
        self._kept_s = time.monotonic()
        self._saving_s = 0.0
        self._following: Following | None = None
        self._has_complained = False

    # -- where it is ----------------------------------------------------------------------------

    @property
    def epochs_done(self) -> int:
        return self.tally.epoch

    @property
    def steps_done(self) -> int:
        """Steps of the current epoch, those of earlier attempts included."""
        return self.tally.step_of_epoch

    @property
    def should_stop(self) -> bool:
        """Rota wants the GPUs back: save and end soon. `epochs` and `steps` do so by themselves."""
        self.reporter.hears = True
        return self._wants_stop()

    @property
    def checkpoint_dir(self) -> Path:
        """A folder of this job that outlives its attempts."""
        return self.keeping.folder()

    # -- the loop -------------------------------------------------------------------------------

    def epochs(
        self,
        total: int | None,
        *,
        save: Saves | None = None,
        save_every_s: float = 0.0,
        done: int | None = None,
    ) -> Iterator[int]:
        """Epochs that are left, counted from 0; each end is a safe point, where `save` is called,
        if the last time was so long ago. `total` is of the whole run: a second loop goes on where
        the first ended. None is for ever. `done` is where to go on for a script that restores by
        its own means."""
        self.expect(total and max(total, self._total or 0), done=done)
        if save is not None and self.tally.epochs_saved is None:
            self.tally.epochs_saved = self.tally.progress
        try:
            while total is None or self.tally.epoch < total:
                self.start_epoch()
                yield self.tally.epoch
                self.end_epoch(save=save, save_every_s=save_every_s)
        finally:
            self._is_looping = self._is_in_epoch = False

    def expect(self, total: int | None, *, done: int | None = None) -> None:
        """How many epochs there will be. For loops that `epochs` does not fit."""
        self._total = total
        if total is not None:
            self.tally.epochs_total = float(total)
        if done is not None:
            self.go_to(Position(done, 0, float(done)))
        self.tally.before = None

    def start_epoch(self) -> None:
        """What `epochs` does before each. For loops that it does not fit."""
        self._begin()
        self._is_in_epoch = True
        self._n_steps_before = self.tally.step_of_epoch
        self._samples, self._saving_s = 0, 0.0
        self._began_s = self.mark_s = time.perf_counter()

    def end_epoch(self, *, save: Saves | None = None, save_every_s: float = 0.0) -> None:
        """What `epochs` does after each: it may save, and raise `Stopped`."""
        tally = self.tally
        seconds = time.perf_counter() - self._began_s - self._saving_s
        n_steps = tally.step_of_epoch
        tally.go_to(tally.epoch + 1, 0)
        self._is_in_epoch, self._n_to_skip = False, 0
        if not self._n_steps_before:
            # An epoch that began in an earlier attempt says nothing about how long one takes.
            tally.end_epoch(seconds, steps=n_steps, samples=self._samples)
        is_last = self._total is not None and tally.epoch >= self._total
        stops = not is_last and self.agree(self._wants_stop())
        is_due = stops or is_last or time.monotonic() - self._kept_s >= save_every_s
        saved = save is not None and is_due and self.save(save)
        if not (stops or is_last) and self.agree(self._wants_stop()):
            # It came while somebody saved.
            stops, saved = True, saved or (save is not None and self.save(save))
        if stops:
            self._stop(saved)

    def steps(self, loader: Iterable[T], *, save: Saves | None = None) -> Iterator[T]:
        """The batches of this epoch that are left. With `save`, each step is a safe point."""
        if not self._n_to_skip or self.tally.steps_total is None:
            self.tally.steps_total = n_steps(loader)
        if self.before_steps is not None:
            self.before_steps()
        try:
            for batch in loader:
                if self._n_to_skip:
                    self._n_to_skip -= 1
                    continue
                self._end_skip()
                self._is_in_steps = True
                yield batch
                self._is_in_steps = False
                self.step(n_samples(batch), save=save)
            self._end_skip()  # All of this epoch's steps may have been done before.
        finally:
            self._is_in_steps = False

    def at_first_step(self, call: Callable[[], object]) -> None:
        """For `load`: call this when the batches that were done are skipped, before the next."""
        self._at_first_step = call

    def _end_skip(self) -> None:
        if self._at_first_step is not None:
            at_first_step, self._at_first_step = self._at_first_step, None
            at_first_step()
            self.mark_s = time.perf_counter()

    def step(self, samples: int = 0, *, save: Saves | None = None) -> None:
        """A step is done. With `save`, it is a safe point."""
        now_s = time.perf_counter()
        if self._is_looping:
            self.tally.step(now_s - self.mark_s, samples)
        else:
            self._begin()  # How long the first took without `epochs` is not known.
        self.mark_s = now_s
        self._samples += samples
        self.tally.step_of_epoch += 1
        if save is not None:
            self.reporter.hears = True
            if self.agree(self._wants_stop()):
                self._stop(self._save(save, self.tally.position()))
        elif self._insistence.came:
            raise Stopped("SIGTERM")

    def report(self, /, **metrics: Any) -> None:
        """The newest loss, accuracy, or whatever is worth seeing: numbers, of any library."""
        numbers, wrong = as_numbers(metrics)
        self.tally.metrics(numbers)
        if wrong and not self._has_complained:
            self._has_complained = True
            say(f"the metric {wrong[0]} is not a finite number; such values are left out")

    def follow_csv(self, path: str | Path) -> None:
        """Take progress and metrics from a CSV that the script appends a row to for each epoch."""
        from rota_trainer.csv_file import CsvFile
        from rota_trainer.following import Following

        if self.place.url and self._following is None:
            self._following = Following(CsvFile(os.fspath(path)), self.tally)

    # -- checkpoints ----------------------------------------------------------------------------

    def save(self, save: Saves) -> bool:
        """Write a checkpoint: within `steps` as after this step, else as after this epoch.

        True when it is on the disk. A failure is said, and training goes on. Only the worker with
        rank 0 writes."""
        return self._save(save, self.tally.position(self._is_in_steps, self._is_in_epoch))

    def restore(self, load: Loads) -> bool:
        """Load the newest sound checkpoint of this job and code. False if there is none."""
        self.tally.before = None
        self.tally.epochs_saved = self.tally.progress
        began_s = time.perf_counter()
        found = self.keeping.newest()
        if found is None:
            return False
        self.go_to(found.position)
        self.tally.epochs_saved = found.position.progress
        try:
            load(found.path)
        except BaseException:
            self.go_to(Position())
            self.tally.epochs_saved, self._at_first_step = 0.0, None
            raise
        self.tally.load_s = time.perf_counter() - began_s
        return True

    def _save(self, save: Saves, position: Position) -> bool:
        began_s = time.perf_counter()
        self._is_saving = True
        try:
            saved = self.keeping.save(save, position)
        finally:
            self._is_saving = False
        seconds = time.perf_counter() - began_s
        self._saving_s += seconds
        self.mark_s += seconds
        if saved:
            self._kept_s = time.monotonic()
            self.tally.save_s = seconds
        if saved or not self.keeping.writes:
            self.tally.epochs_saved = position.progress
        if self._insistence.came and not self._is_looping:
            raise Stopped("SIGTERM", saved=saved)
        return saved

    # -- ends -----------------------------------------------------------------------------------

    def listen(self) -> None:
        """Begin to report, and to hear SIGTERM."""
        self._insistence.listen()
        if self.place.url and self.place.speaks:
            self.reporter.start()

    def close(self) -> None:
        """The last report. Called at exit, too."""
        self._insistence.forget()
        if self._following is not None:
            self._following.close()
        self.reporter.close()

    def in_forked_child(self) -> None:
        """A process that this one forked, to load data for instance, is not the run."""
        self._insistence.forget()
        self.reporter.abandon()
        self.tally.unlock()
        self._following = None

    def _wants_stop(self) -> bool:
        if self._insistence.came:
            return True
        is_last = self._total is not None and self.tally.epoch >= self._total - 1
        return bool(self.reporter.stop) and not (self._is_in_epoch and is_last)

    def _stop(self, saved: bool) -> None:
        # All wait here for the one that writes: the end of any may be the end of all.
        saved = self.agree(saved)
        raise Stopped(self.reporter.stop or "SIGTERM", saved=saved)

    def _stop_outside(self) -> None:
        """SIGTERM came: where there is no safe point ahead, nothing is gained by waiting for it."""
        if not (self._is_looping or self._is_saving):
            raise Stopped("SIGTERM")

    def _begin(self) -> None:
        self.reporter.hears = self.reporter.hears or self._total is not None
        self._is_looping = True
        self.tally.before = None
        if self.tally.start_s is None and self.place.began_s is not None:
            started_s = time.time() - self.place.began_s - (self.tally.load_s or 0.0)
            self.tally.start_s = max(0.0, started_s)

    def go_to(self, position: Position) -> None:
        """This is where the run is; `steps` skips what was done of the epoch."""
        self.tally.go_on_from(position)
        self._n_to_skip = position.step
