"""`ElasticTrainer`, public as `rota_trainer.torch.live`: the object that a live script uses.

A step runs like this: take a snapshot, let the script compute, vote on what to do next while the
gradients are reduced, count the step, then follow the vote (stop, switch to a new generation, or
continue). If a worker fails during the step, the survivors restore the snapshot and join the next
generation; the samples of the step are used again.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from typing import Any

import torch

from rota_trainer.console import print_message
from rota_trainer.elastic import sampler
from rota_trainer.elastic.checkpointing import SAVE_EVERY_S, ElasticCheckpointer
from rota_trainer.elastic.model import ElasticModel
from rota_trainer.elastic.rendezvous import ElasticRendezvous, NoGenerationError, TrainingContext
from rota_trainer.elastic.sampler import ElasticSampler
from rota_trainer.elastic.setup import default_patience_s, prepare
from rota_trainer.elastic.state import TrainingState
from rota_trainer.elastic.voting import NO_REQUESTS, VoteSchedule
from rota_trainer.exceptions import Stopped
from rota_trainer.progress.position import Position
from rota_trainer.run import Run

LAST_S = 5.0
"""How long a worker that has finished all epochs waits for a new generation with the others."""


class ElasticTrainer:
    """Trains with a number of workers that may change at any time.

    The script calls `model` instead of its own model. `rank`, `size` and `generation` change during
    a run; rank 0 writes checkpoints.

    `batch_size` is the batch of all workers together. With `batch_scaling` "linear" or "sqrt" it is
    the batch of each worker, and the learning rate grows with the number of workers by that rule.
    `extra` are further objects with `state_dict` and `load_state_dict` that must be the same in all
    workers. `patience_s` is how long to wait for the daemon after a worker failed, before saving
    and stopping. `loader` and `ddp` are options for DataLoader and DistributedDataParallel.
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
        self._samples = ElasticSampler(dataset, batch_size, batch_scaling, seed, loader or {})
        self._samples.check()
        named = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
        self._state = TrainingState({**named, **extra})
        self.model = ElasticModel(model, ddp or {}, before_sharing=self._begin_vote)
        self._run = run
        self._checkpointer = ElasticCheckpointer(
            run, self._state, every_s=save_every_s, n_samples=self._samples.length
        )
        context = TrainingContext(run, self._state, self.model, self._checkpointer)
        self._rendezvous = prepare(context, self._samples, backend=backend)
        self._patience_s = default_patience_s() if patience_s is None else patience_s
        self._total = 0
        self._share = sampler.BatchShare([], 1.0, 0)
        self._snapshot: dict[str, Any] | None = None
        self._votes, self._is_applied, self._must_exit = VoteSchedule(), False, False
        self._n_changes = 0  # Each generation change makes batches that were loaded ahead useless.
        self._run.agree = lambda _flag: False  # The votes decide about stops.
        optimizer.register_step_pre_hook(self._before_applying)
        optimizer.register_step_post_hook(self._after_applying)

    # -- position -------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        return self._rendezvous.rank if self._rendezvous else 0

    @property
    def size(self) -> int:
        return self._rendezvous.size if self._rendezvous else 1

    @property
    def generation(self) -> int:
        return self._rendezvous.membership.generation if self._rendezvous else 0

    @property
    def global_step(self) -> int:
        """The number of finished steps of all epochs."""
        return self._state.progress.global_step

    # -- the loop -------------------------------------------------------------------------------

    def epochs(self, total: int) -> Iterator[int]:
        """Yield the remaining epochs, counted from 0. Joins the other workers first."""
        self._total = total
        self._enter(self._patience_s)
        self._run.expect(total)
        while self._state.progress.epoch < total:
            epoch = self._state.progress.epoch
            self._run.go_to(Position(epoch, self._state.progress.steps))
            self._run.start_epoch()
            yield epoch
            self._run.end_epoch()
            progress = self._state.progress
            progress.epoch, progress.used, progress.steps = epoch + 1, 0, 0
        if self._rendezvous is not None:
            self._rendezvous.leave_group()

    def batches(self) -> Iterator[Any]:
        """Yield this worker's part of each remaining batch of the epoch."""
        while self._state.progress.used < self._samples.length:
            n_changes = self._n_changes
            for share, batch in self._samples.load(
                self._state.progress, rank=self.rank, size=self.size
            ):
                self._share, step = share, self.global_step
                yield batch
                if self._n_changes != n_changes:
                    break
                if self.global_step == step:
                    raise RuntimeError(
                        "a batch was used without a step; use: with live.step(): ..."
                    )
        self._end_together()

    @contextlib.contextmanager
    def step(self) -> Generator[None, None, None]:
        """The context for all work on one batch. A step that fails because a worker is gone is
        undone, and its samples are used again."""
        self._begin_step()
        try:
            yield
        except RuntimeError as error:
            group = self._rendezvous.group if self._rendezvous else None
            if group is None or not group.is_cause_of(error):
                raise
            print_message(f"step {self.global_step + 1} was aborted: a worker is gone")
            self._undo_step()
            self._rejoin()
            return
        self._count_step()
        self._apply_vote()

    # -- a step ---------------------------------------------------------------------------------

    def _begin_step(self) -> None:
        self._is_applied = False
        self.model.set_weight(self._share.weight)
        group = self._rendezvous.group if self._rendezvous else None
        self._snapshot = None if group is None else self._state.snapshot()
        self._votes.begin_step(self.global_step)

    def _begin_vote(self) -> None:
        """Vote when the first gradients of a step are ready. The vote then runs while the gradients
        are reduced, and its result arrives before them."""
        group = self._rendezvous.group if self._rendezvous else None
        if group is None or not self._votes.is_open:
            return
        try:
            self._votes.cast(group, self._requests())
        except RuntimeError as error:
            if not group.is_cause_of(error):
                raise
            group.abort()  # The following collectives of this step must fail too.

    def _requests(self) -> list[int]:
        """This worker's vote: the newest generation that it knows, whether rota requests a stop
        (-1; one such vote stops all), and whether this worker got SIGTERM (1; all stop if all did).
        The result of a vote is the minimum of each value."""
        newest = self._rendezvous.membership.newest if self._rendezvous else None
        stops = self._run.should_stop
        goes = stops and not self._run.reporter.stop
        return [newest.generation if newest else -1, goes - stops, int(goes)]

    def _before_applying(self, *_: Any) -> None:
        if self._rendezvous is not None and self._rendezvous.group is not None:
            self._rendezvous.group.wait_for_gradients()

    def _after_applying(self, *_: Any) -> None:
        self._is_applied = True

    def _undo_step(self) -> None:
        if self._is_applied:
            self._count_step()
        elif self._snapshot is not None:
            self._state.restore_snapshot(self._snapshot)

    def _count_step(self) -> None:
        progress, share = self._state.progress, self._share
        progress.global_step += 1
        progress.steps += 1
        progress.used += share.n_together
        own_s = self.model.ready_s - self._run.step_began_s
        # `save` marks a safe point; the checkpoint itself is written elsewhere.
        self._run.step(len(share.samples) if share.weight else 0, save=lambda _path: None)
        if self._rendezvous is not None:
            if own_s > 0:
                self._rendezvous.membership.record_own_time(own_s)
            self._rendezvous.membership.mark_activity(is_step=True)
            self._rendezvous.membership.publish(step=progress.global_step)

    def _apply_vote(self) -> bool:
        """Follow the result of this step's vote. Returns False if the generation changed."""
        group = self._rendezvous.group if self._rendezvous else None
        requests = self._requests() if group is None else NO_REQUESTS
        if group is not None:
            try:
                self.model.broadcast_buffers()
                if self._votes.is_held:
                    self._votes.cast(group, self._requests())
                    requests = self._votes.count(self.global_step)
            except RuntimeError as error:
                if not group.is_cause_of(error):
                    raise
                print_message(f"a worker is gone after step {self.global_step}")
                self._rejoin()
                return False
        if requests[1] or requests[2]:
            self._stop()
        if self._rendezvous is not None and self._votes.is_held and self._votes.own[2]:
            self._exit_if_others_stay(self._rendezvous)
        if self._rendezvous is not None and requests[0] > self.generation:
            if group is not None:
                group.closing_barrier()
            self._rejoin()
            return False
        if self.rank == 0:
            self._checkpointer.save_if_due()
        return True

    def _exit_if_others_stay(self, rendezvous: ElasticRendezvous) -> None:
        """Exit at the second vote after SIGTERM. If all workers got SIGTERM, some of them may not
        have it at the first vote yet; at the second vote all stop together."""
        if self._must_exit:
            rendezvous.exit_alone()
        self._must_exit = True

    def _end_together(self) -> None:
        """Wait until all workers have finished this epoch, so that each of them runs the script's
        code between two epochs exactly once."""
        while True:
            rendezvous = self._rendezvous
            group = rendezvous.group if rendezvous else None
            # A worker that failed in here may have stopped only some of the others; the rest are in
            # the next epoch already.
            if rendezvous is None or group is None or rendezvous.epoch > self._state.progress.epoch:
                return
            self._votes.begin()
            if self._apply_vote():
                return

    # -- changes --------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        progress = self._state.progress
        is_done = progress.epoch + 1 == self._total and progress.used >= self._samples.length
        self._enter(LAST_S if is_done else self._patience_s, is_done=is_done)

    def _enter(self, patience_s: float, *, is_done: bool = False) -> None:
        self._n_changes += 1
        self._votes = VoteSchedule()
        if self._rendezvous is None:
            if self.global_step < 0 and not self._checkpointer.restore():
                self._state.progress.global_step = 0
        else:
            self._rendezvous.leave_group()
            try:
                self._rendezvous.enter(patience_s)
            except NoGenerationError as why:
                if is_done:
                    return
                self._stop_alone(str(why))
        self._state.scale_rates(sampler.rate_factor(self.size, self._samples.scaling))
        self._run.tally.go_to(self._state.progress.epoch, self._state.progress.steps)
        self._run.tally.steps_total = self._samples.n_steps(self._state.progress, size=self.size)
        self._run.step_began_s = time.perf_counter()

    def _stop(self) -> None:
        """Stop together with all workers: rank 0 saves, the others wait for it."""
        saved = self._checkpointer.save() if self.rank == 0 else True
        group = self._rendezvous.group if self._rendezvous else None
        if group is not None:
            try:
                saved = bool(group.vote([int(saved)]).result()[0])
            except RuntimeError:
                if self.rank != 0:
                    self._stop_alone("worker of rank 0 failed, perhaps before it had saved")
        raise Stopped(self._run.reporter.stop or "SIGTERM", saved=saved)

    def _stop_alone(self, reason: str) -> None:
        """Stop without the other workers, which cannot be reached: each worker saves its state, and
        the newest checkpoint is used later."""
        self._run.checkpointer.writes = True
        saved = self.global_step >= 0 and self._checkpointer.save()
        print_message(f"stopping: {reason}")
        raise Stopped(reason, saved=saved)
