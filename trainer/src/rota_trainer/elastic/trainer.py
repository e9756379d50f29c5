"""What a script holds: epochs, batches and steps that survive any change of workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any

import torch

from rota_trainer.live import sharing
from rota_trainer.live.ballots import NO_WISHES, Ballots
from rota_trainer.live.disk import SAVE_EVERY_S, Disk
from rota_trainer.live.joining import Joining, NobodyCameError, Training
from rota_trainer.live.model import ElasticModel
from rota_trainer.live.parts import Parts
from rota_trainer.live.samples import Samples
from rota_trainer.live.starting import default_patience_s, prepare
from rota_trainer.position import Position
from rota_trainer.run import Run
from rota_trainer.say import say
from rota_trainer.stops import Stopped

LAST_S = 5.0
"""Who has finished all epochs helps the others for so long, and no longer."""


class Live:
    """Trains with as many workers as there are, however they come and go.

    `model` is to be called instead of the script's own. `rank`, `size` and `generation` change in
    the course of a run; who has rank 0 writes checkpoints.

    `batch_size` is that of all workers together; with `batch_scaling` "linear" or "sqrt" it is that
    of each, and the learning rate grows with their number by that rule. `extra` is whatever else
    has `state_dict` and `load_state_dict` and is to be the same in all workers. `patience_s` is how
    long to wait for the daemon when a worker is gone, before saving and stopping. `loader` and
    `ddp` are options for DataLoader and DistributedDataParallel.
    """

    def __init__(
        self,
        run: Run,
        *,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        dataset: Any,
        batch_size: int,
        scheduler: Any = None,
        scaler: Any = None,
        seed: int = 0,
        backend: str | None = None,
        batch_scaling: str = "constant",
        patience_s: float | None = None,
        save_every_s: float = SAVE_EVERY_S,
        loader: dict[str, Any] | None = None,
        ddp: dict[str, Any] | None = None,
        **extra: Any,
    ) -> None:
        self._samples = Samples(dataset, batch_size, batch_scaling, seed, loader or {})
        self._samples.check()
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
        self._parts = Parts({**named, **extra})
        self.model = ElasticModel(model, ddp or {})
        self.model.before_sharing = self._begin_vote
        self._run = run
        self._disk = Disk(run, self._parts, every_s=save_every_s, n_samples=self._samples.length)
        training = Training(run, self._parts, self.model, self._disk)
        self._joining = prepare(training, self._samples, backend=backend)
        self._patience_s = default_patience_s() if patience_s is None else patience_s
        self._total = 0
        self._share = sharing.Share([], 1.0, 0)
        self._snapshot: dict[str, Any] | None = None
        self._ballots = Ballots()
        self._is_applied = self._has_to_go = False
        self._n_changes = 0
        """Counts what makes batches that were loaded ahead useless."""
        self._run.agree = lambda _flag: False  # The vote of each step decides.
        optimizer.register_step_pre_hook(self._before_applying)
        optimizer.register_step_post_hook(self._after_applying)

    # -- where it is ----------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._joining.rank if self._joining else 0

    @property
    def size(self) -> int:
        return self._joining.size if self._joining else 1

    @property
    def generation(self) -> int:
        return self._joining.membership.generation if self._joining else 0

    @property
    def global_step(self) -> int:
        """Steps of all epochs that are done."""
        return self._parts.at.global_step

    # -- the loop -------------------------------------------------------------------------------

    def epochs(self, total: int) -> Iterator[int]:
        """Epochs that are left, counted from 0. Joins the others first."""
        self._total = total
        self._enter(self._patience_s)
        self._run.expect(total)
        while self._parts.at.epoch < total:
            epoch = self._parts.at.epoch
            self._run.go_to(Position(epoch, self._parts.at.steps))
            self._run.start_epoch()
            yield epoch
            self._run.end_epoch()
            at = self._parts.at
            at.epoch, at.used, at.steps = epoch + 1, 0, 0
        if self._joining is not None:
            self._joining.leave_group()

    def batches(self) -> Iterator[Any]:
        """This worker's part of each batch of the epoch that is left."""
        while self._parts.at.used < self._samples.length:
            n_changes = self._n_changes
            for share, batch in self._samples.load(self._parts.at, rank=self.rank, size=self.size):
                self._share, step = share, self.global_step
                yield batch
                if self._n_changes != n_changes:
                    break
                if self.global_step == step:
                    raise RuntimeError("each batch needs a step: with live.step(): ...")
        self._end_together()

    @contextlib.contextmanager
    def step(self) -> Generator[None, None, None]:
        """Around all that is done with a batch. A step that cannot be finished because a worker is
        gone is undone, and its samples come again."""
        self._begin_step()
        try:
            yield
        except RuntimeError as error:
            group = self._joining.group if self._joining else None
            if group is None or not group.is_why(error):
                raise
            say(f"step {self.global_step + 1} was not finished: a worker is gone")
            self._undo_step()
            self._rejoin()
            return
        self._count_step()
        self._heed_vote()

    # -- a step ---------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._is_applied = False
        self.model.weigh(self._share.weight)
        group = self._joining.group if self._joining else None
        self._snapshot = None if group is None else self._parts.snapshot()
        self._ballots.begin_step(self.global_step)

    def _begin_vote(self) -> None:
        """When the first gradients of a step are ready: torch is warm then, which makes it cheap,
        and the answer is there before the gradients are."""
        group = self._joining.group if self._joining else None
        if group is None or not self._ballots.is_open:
            return
        try:
            self._ballots.cast(group, self._wishes())
        except RuntimeError as error:
            if not group.is_why(error):
                raise
            group.abort()  # What follows in this step will fail as well.

    def _wishes(self) -> list[int]:
        """The newest generation known here, whether rota asks to stop (the first such wish stops
        all), and whether this worker has to go (all stop if all have to)."""
        newest = self._joining.membership.newest if self._joining else None
        stops = self._run.should_stop
        goes = stops and not self._run.reporter.stop
        return [newest.generation if newest else -1, goes - stops, int(goes)]

    def _before_applying(self, *_: Any) -> None:
        if self._joining is not None and self._joining.group is not None:
            self._joining.group.settle()

    def _after_applying(self, *_: Any) -> None:
        self._is_applied = True

    def _undo_step(self) -> None:
        if self._is_applied:
            self._count_step()
        elif self._snapshot is not None:
            self._parts.put_back(self._snapshot)

    def _count_step(self) -> None:
        at, share = self._parts.at, self._share
        at.global_step += 1
        at.steps += 1
        at.used += share.n_together
        own_s = self.model.ready_s - self._run.mark_s
        # Nothing is saved in the middle of a step.
        self._run.step(len(share.samples) if share.weight else 0, save=lambda _path: None)
        if self._joining is not None:
            if own_s > 0:
                self._joining.membership.worked(own_s)
            self._joining.membership.moved(is_step=True)
            self._joining.membership.tell(step=at.global_step)

    def _heed_vote(self) -> bool:
        """What all workers have agreed on during this step. False if anything changed."""
        group = self._joining.group if self._joining else None
        wishes = self._wishes() if group is None else NO_WISHES
        if group is not None:
            try:
                self.model.buffers_together()
                if self._ballots.is_held:
                    self._ballots.cast(group, self._wishes())
                    wishes = self._ballots.count(self.global_step)
            except RuntimeError as error:
                if not group.is_why(error):
                    raise
                self._rejoin()
                return False
        if wishes[1] or wishes[2]:
            self._stop()
        if self._joining is not None and self._ballots.is_held and self._ballots.own[2]:
            self._go_if_others_stay(self._joining)
        if self._joining is not None and wishes[0] > self.generation:
            if group is not None:
                group.part()
            self._rejoin()
            return False
        if self.rank == 0:
            self._disk.save_if_due()
        return True

    def _go_if_others_stay(self, joining: Joining) -> None:
        """By the second vote: when all are to end, not all of them hear of it before the first."""
        if self._has_to_go:
            joining.go_alone()
        self._has_to_go = True

    def _end_together(self) -> None:
        """Nobody goes on to the next epoch before all have finished this one: what the script does
        in between is done once by each."""
        while True:
            joining = self._joining
            group = joining.group if joining else None
            # Who died in here may have kept only some of the others from going on.
            if joining is None or group is None or joining.epoch > self._parts.at.epoch:
                return
            self._ballots.begin()
            if self._heed_vote():
                return

    # -- changes --------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        at = self._parts.at
        is_done = at.epoch + 1 == self._total and at.used >= self._samples.length
        self._enter(LAST_S if is_done else self._patience_s, is_done=is_done)

    def _enter(self, patience_s: float, *, is_done: bool = False) -> None:
        self._n_changes += 1
        self._ballots = Ballots()
        if self._joining is None:
            if self.global_step < 0 and not self._disk.restore():
                self._parts.at.global_step = 0
        else:
            self._joining.leave_group()
            try:
                self._joining.enter(patience_s)
            except NobodyCameError as why:
                if is_done:
                    return
                self._stop_alone(str(why))
        self._parts.scale_rates(sharing.rate_factor(self.size, self._samples.scaling))
        self._run.tally.go_to(self._parts.at.epoch, self._parts.at.steps)
        self._run.tally.steps_total = self._samples.n_steps(self._parts.at, size=self.size)
        self._run.mark_s = time.perf_counter()

    def _stop(self) -> None:
        """Asked to, together with all others: the first worker saves, the others wait for it."""
        saved = self._disk.save() if self.rank == 0 else True
        group = self._joining.group if self._joining else None
        if group is not None:
            try:
                saved = bool(group.vote([int(saved)]).result()[0])
            except RuntimeError:
                if self.rank != 0:
                    self._stop_alone("the first worker is gone, perhaps before it had saved")
        raise Stopped(self._run.reporter.stop or "SIGTERM", saved=saved)

    def _stop_alone(self, reason: str) -> None:
        """The others cannot be reached: each saves what it has, and the newest counts."""
        self._run.keeping.writes = True
        saved = self.global_step >= 0 and self._disk.save()
        say(f"stopping: {reason}")
        raise Stopped(reason, saved=saved)
