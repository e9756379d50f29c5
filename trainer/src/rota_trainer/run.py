"""The object that a training script uses: epochs, steps, metrics, safe points, checkpoints.

`start()` makes a `Run` from the environment of the worker. `Run` counts epochs and steps, hands the
counts to the `Reporter` thread, saves at safe points through the `Checkpointer`, and raises
`Stopped` at a safe point after rota requested a stop or SIGTERM arrived.

Errors of reporting and saving are printed, never raised. Importing this module must stay fast:
modules that are needed later only are imported later.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, TypeVar

from rota_trainer.checkpoint.checkpointer import Checkpointer
from rota_trainer.console import print_message
from rota_trainer.exceptions import Stopped
from rota_trainer.progress.numbers import as_numbers, n_samples, n_steps
from rota_trainer.progress.position import Position
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.environment import WorkerEnvironment, apply_umask, read_environment
from rota_trainer.reporting.reporter import Reporter
from rota_trainer.sigterm import SigtermHandler

if TYPE_CHECKING:
    from pathlib import Path

    from rota_trainer.progress.csv_file import CsvFollower

    Saves = Callable[[Path], object]
    Loads = Callable[[Path], object]


T = TypeVar("T")


class Run:
    """One training run. Only the training thread may use it; `report` and `should_stop` may be used
    in any thread."""

    def __init__(self, environment: WorkerEnvironment, checkpointer: Checkpointer) -> None:
        self.environment = environment
        self.agree: Callable[[bool], bool] = bool
        """Whether the flag is set in any worker, so that all workers decide the same.
        `rota_trainer.torch` asks the process group; here there is one worker only."""
        self.before_steps: Callable[[], object] | None = None
        """Called each time before `steps` makes its iterator, because that may draw random
        numbers."""
        self.checkpointer = checkpointer
        self.tally = Tally(environment.epochs_done, environment.epochs_total)
        self.reporter = Reporter(environment, self.tally)
        self._sigterm = SigtermHandler(self._stop_outside_loop)
        self._total: int | None = None
        self._at_first_step: Callable[[], object] | None = None
        self._n_to_skip = 0
        self._n_steps_before = 0
        self._is_looping = self._is_in_epoch = self._is_in_steps = self._is_saving = False
        self._samples = 0
        self._epoch_began_s = self.step_began_s = time.perf_counter()
        self._last_save_s = time.monotonic()
        self._saving_s = 0.0
        self._csv_follower: CsvFollower | None = None
        self._has_warned = False

    # -- position -------------------------------------------------------------------------------

    @property
    def epochs_done(self) -> int:
        return self.tally.epoch

    @property
    def steps_done(self) -> int:
        """Steps of the current epoch, those of earlier attempts included."""
        return self.tally.step_of_epoch

    @property
    def should_stop(self) -> bool:
        """Rota needs the GPUs: the script should save and end soon. `epochs` and `steps` do this
        by themselves; this property is for other loops."""
        self.reporter.hears = True
        return self._wants_stop()

    @property
    def checkpoint_dir(self) -> Path:
        """A folder that all attempts of this job share."""
        return self.checkpointer.folder()

    # -- the loop -------------------------------------------------------------------------------

    def epochs(
        self,
        total: int | None,
        *,
        save: Saves | None = None,
        save_every_s: float = 0.0,
        done: int | None = None,
    ) -> Iterator[int]:
        """Yield the remaining epochs, counted from 0. Each end of an epoch is a safe point.

        At a safe point `save` is called if the last save is at least `save_every_s` seconds ago.
        `total` is the number of epochs of the whole run (None: no end): a second loop continues
        where the first one ended. `done` is the number of finished epochs, for scripts that restore
        their state by themselves.
        """
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
        """Set how many epochs the run has. For loops that cannot use `epochs`."""
        self._total = total
        if total is not None:
            self.tally.epochs_total = float(total)
        if done is not None:
            self.go_to(Position(done, 0, float(done)))
        self.tally.before = None

    def start_epoch(self) -> None:
        """Begin an epoch. For loops that cannot use `epochs`."""
        self._begin()
        self._is_in_epoch = True
        self._n_steps_before = self.tally.step_of_epoch
        self._samples, self._saving_s = 0, 0.0
        self._epoch_began_s = self.step_began_s = time.perf_counter()

    def end_epoch(self, *, save: Saves | None = None, save_every_s: float = 0.0) -> None:
        """End an epoch: may save, may raise `Stopped`. For loops that cannot use `epochs`."""
        tally = self.tally
        seconds = time.perf_counter() - self._epoch_began_s - self._saving_s
        n_steps = tally.step_of_epoch
        tally.go_to(tally.epoch + 1, 0)
        self._is_in_epoch, self._n_to_skip = False, 0
        if not self._n_steps_before:
            # Only an epoch that began in this attempt has a known duration.
            tally.end_epoch(seconds, steps=n_steps, samples=self._samples)
        is_last = self._total is not None and tally.epoch >= self._total
        stops = not is_last and self.agree(self._wants_stop())
        is_due = stops or is_last or time.monotonic() - self._last_save_s >= save_every_s
        saved = save is not None and is_due and self.save(save)
        if not (stops or is_last) and self.agree(self._wants_stop()):
            # The request arrived during the save.
            stops, saved = True, saved or (save is not None and self.save(save))
        if stops:
            self._stop(saved)

    def steps(self, loader: Iterable[T], *, save: Saves | None = None) -> Iterator[T]:
        """Yield the remaining batches of this epoch. With `save`, each step is a safe point."""
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
            self._end_skip()  # An earlier attempt may have done all steps of this epoch.
        finally:
            self._is_in_steps = False

    def at_first_step(self, call: Callable[[], object]) -> None:
        """Call `call` once, after the batches that an earlier attempt did are skipped and before
        the next batch. A `load` function uses it to restore random states."""
        self._at_first_step = call

    def _end_skip(self) -> None:
        if self._at_first_step is not None:
            at_first_step, self._at_first_step = self._at_first_step, None
            at_first_step()
            self.step_began_s = time.perf_counter()

    def step(self, samples: int = 0, *, save: Saves | None = None) -> None:
        """Count a finished step. With `save`, this is a safe point."""
        now_s = time.perf_counter()
        if self._is_looping:
            self.tally.step(now_s - self.step_began_s, samples)
        else:
            self._begin()  # Without `epochs`, the beginning of the first step is unknown.
        self.step_began_s = now_s
        self._samples += samples
        self.tally.step_of_epoch += 1
        if save is not None:
            self.reporter.hears = True
            if self.agree(self._wants_stop()):
                self._stop(self._save(save, self.tally.position()))
        elif self._sigterm.received:
            raise Stopped("SIGTERM")

    def report(self, /, **metrics: Any) -> None:
        """Report metrics such as loss or accuracy: finite numbers of Python, numpy or torch."""
        numbers, wrong = as_numbers(metrics)
        self.tally.metrics(numbers)
        if wrong and not self._has_warned:
            self._has_warned = True
            print_message(f"metric {wrong[0]} is not a finite number; such values are ignored")

    def follow_csv(self, path: str | Path) -> None:
        """Read progress and metrics from a CSV file to which the script appends a row after each
        epoch."""
        from rota_trainer.progress.csv_file import CsvFile, CsvFollower

        if self.environment.url and self._csv_follower is None:
            self._csv_follower = CsvFollower(CsvFile(os.fspath(path)), self.tally)

    # -- checkpoints ----------------------------------------------------------------------------

    def save(self, save: Saves) -> bool:
        """Write a checkpoint now. Within `steps` it counts as made after the current step, else as
        made after the current epoch.

        Returns whether it is on disk. A failure is printed and training continues. Only the worker
        with rank 0 writes.
        """
        return self._save(save, self.tally.position(self._is_in_steps, self._is_in_epoch))

    def restore(self, load: Loads) -> bool:
        """Load the newest valid checkpoint of this job and code. Returns False if there is none."""
        self.tally.before = None
        self.tally.epochs_saved = self.tally.progress
        began_s = time.perf_counter()
        found = self.checkpointer.newest()
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
            saved = self.checkpointer.save(save, position)
        finally:
            self._is_saving = False
        seconds = time.perf_counter() - began_s
        self._saving_s += seconds
        self.step_began_s += seconds
        if saved:
            self._last_save_s = time.monotonic()
            self.tally.save_s = seconds
        if saved or not self.checkpointer.writes:
            self.tally.epochs_saved = position.progress
        if self._sigterm.received and not self._is_looping:
            raise Stopped("SIGTERM", saved=saved)
        return saved

    # -- start and stop -------------------------------------------------------------------------

    def listen(self) -> None:
        """Start reporting, and handle SIGTERM."""
        self._sigterm.install()
        if self.environment.url and self.environment.is_reporter:
            self.reporter.start()

    def close(self) -> None:
        """Send the last report. Also called at exit."""
        self._sigterm.uninstall()
        if self._csv_follower is not None:
            self._csv_follower.close()
        self.reporter.close()

    def in_forked_child(self) -> None:
        """Detach from the run in a forked process, such as a data loader: it does not report."""
        self._sigterm.uninstall()
        self.reporter.abandon()
        self.tally.unlock()
        self._csv_follower = None

    def _wants_stop(self) -> bool:
        if self._sigterm.received:
            return True
        is_last = self._total is not None and self.tally.epoch >= self._total - 1
        return bool(self.reporter.stop) and not (self._is_in_epoch and is_last)

    def _stop(self, saved: bool) -> None:
        # All workers wait here until rank 0 has saved: the exit of one worker may end all of them.
        saved = self.agree(saved)
        raise Stopped(self.reporter.stop or "SIGTERM", saved=saved)

    def _stop_outside_loop(self) -> None:
        """Stop at SIGTERM immediately where no safe point follows: outside of loop and save."""
        if not (self._is_looping or self._is_saving):
            raise Stopped("SIGTERM")

    def _begin(self) -> None:
        self.reporter.hears = self.reporter.hears or self._total is not None
        self._is_looping = True
        self.tally.before = None
        if self.tally.start_s is None and self.environment.began_s is not None:
            started_s = time.time() - self.environment.began_s - (self.tally.load_s or 0.0)
            self.tally.start_s = max(0.0, started_s)

    def go_to(self, position: Position) -> None:
        """Set the position of the run; `steps` then skips the finished steps of the epoch."""
        self.tally.go_on_from(position)
        self._n_to_skip = position.step


_runs: weakref.WeakSet[Run] = weakref.WeakSet()


def start(
    *,
    keep: int = 2,
    checkpoint_dir: str | Path | None = None,
    code: str | None = None,
) -> Run:
    """Start a run, as a worker of rota or standalone.

    `keep` is how many checkpoints are kept. `checkpoint_dir` is the folder for checkpoints
    (default: the job's folder). `code` identifies the code that checkpoints belong to (default: a
    hash of the main script).
    """
    environment = read_environment()
    apply_umask(environment)
    run = Run(environment, Checkpointer(environment, keep=keep, folder=checkpoint_dir, code=code))
    _runs.add(run)
    run.listen()
    atexit.register(run.close)
    return run


def _after_fork() -> None:
    for run in list(_runs):
        run.in_forked_child()


os.register_at_fork(after_in_child=_after_fork)
