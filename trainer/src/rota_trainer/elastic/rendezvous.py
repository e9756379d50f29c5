"""How a worker joins the newest generation: wait for the switch, meet, connect, sync the state.

The members of a generation meet at the store of its first member, in two steps: each writes its
step count to the store, then all open a process group. The members that are behind get the state of
the most advanced member. The first collective commits the generation. If anything fails, the worker
leaves the group and tries again, with the newest switch.
"""

# torch has incomplete type hints.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import contextlib
import gc
import time
from datetime import timedelta
from typing import Any, Callable, NamedTuple, NoReturn

import torch.distributed as dist

from rota_trainer.console import print_message
from rota_trainer.elastic import state_broadcast, tcp_store
from rota_trainer.elastic.abortable_sockets import AbortableSockets
from rota_trainer.elastic.checkpointing import ElasticCheckpointer
from rota_trainer.elastic.membership import MembershipClient, OpenProcessGroup
from rota_trainer.elastic.model import ElasticModel
from rota_trainer.elastic.process_group import ElasticProcessGroup, open_group
from rota_trainer.elastic.state import FRESH, TrainingState
from rota_trainer.exceptions import JoinRefused, Stopped, WorkerRemoved
from rota_trainer.reporting.messages import Switch
from rota_trainer.run import Run

LISTEN_S = 0.2
RETRY_S = 1.0
"""The time for an order about a failed worker to arrive. Without such an order, the same generation
tries again."""
STORE_WAIT_S = 0.2


class NoGenerationError(Exception):
    """No generation was formed in time, or the worker must stop; the message is the reason."""


class GenerationAbandonedError(Exception):
    """The current attempt to form a generation ended: there is a newer one, or it failed."""


class TrainingContext(NamedTuple):
    """The objects of one training."""

    run: Run
    state: TrainingState
    model: ElasticModel
    checkpointer: ElasticCheckpointer


class ElasticRendezvous:
    def __init__(self, training: TrainingContext, *, identity: str, backend: str | None) -> None:
        self.rank, self.size = 0, 1
        self.epoch = 0
        """The highest epoch of all members when the generation was formed."""
        self.group: ElasticProcessGroup | None = None
        self._store_sockets: AbortableSockets | None = None
        """The connections to the store at which the newest generation meets."""
        self._training = training
        self._backend = backend
        self._met = (-1, 0)
        """The newest generation that was tried, and how often all its members have met."""
        self._served, self._address = tcp_store.serve()
        run = training.run
        self.membership = MembershipClient(
            run.environment, run.reporter, identity=identity, address=self._address
        )

    def enter(self, patience_s: float) -> None:
        """Join the newest generation. Raises NoGenerationError, WorkerRemoved, JoinRefused, or the
        error of a state that does not fit."""
        began_s = time.monotonic()
        self.membership.mark_activity(is_step=False)
        while True:
            switch = self._wait_for_switch(began_s + patience_s)
            try:
                self._try(switch, began_s + patience_s)
            except GenerationAbandonedError:
                self.leave_group()
                continue
            progress = self._training.state.progress
            self.membership.generation = switch.generation
            self.membership.mark_activity(is_step=False)
            self.membership.publish(step=progress.global_step, pause_s=time.monotonic() - began_s)
            return

    def leave_group(self) -> None:
        self.membership.opened = None
        self._training.model.unwrap_ddp()
        group, self.group = self.group, None
        if group is not None:
            group.close()
        if self._store_sockets is not None:
            self._store_sockets.close()

    def exit_alone(self) -> NoReturn:
        """Exit after a SIGTERM to this worker only. The others continue and have its state."""
        print_message("SIGTERM: this worker stops, the other workers continue")
        self.leave_group()
        # The others wait for the exit of this process; a final garbage collection would delay it.
        gc.freeze()
        raise Stopped("SIGTERM")

    # -- waiting --------------------------------------------------------------------------------

    def _wait_for_switch(self, until_s: float) -> Switch:
        """Wait for the newest switch that contains this worker; one that failed is retried."""
        members = self.membership
        while True:
            if members.refused and members.generation < 0:
                print_message(f"this worker may not join: {members.refused}")
                raise JoinRefused(members.refused)
            switch = members.newest
            if switch is not None and members.is_in(switch):
                if switch.generation != self._met[0]:
                    self._met = (switch.generation, 0)
                    return switch
                members.wait(RETRY_S)
                if not self._is_over(switch, until_s):
                    return switch
            elif switch is not None and members.is_left_out(switch):
                print_message("this worker was removed from the job; the other workers continue")
                raise WorkerRemoved
            self._check_deadline(until_s)
            members.wait(LISTEN_S)

    def _check_deadline(self, until_s: float) -> None:
        reason = self._training.run.reporter.stop
        if reason or self._training.run.should_stop:
            raise NoGenerationError(reason or "SIGTERM")
        if time.monotonic() > until_s:
            raise NoGenerationError("a worker is gone, and the daemon sent no new generation")

    def _is_over(self, switch: Switch, until_s: float) -> bool:
        """Whether to stop waiting for the other members of this generation."""
        is_late = time.monotonic() > until_s
        is_asked = self._training.run.should_stop or bool(self._training.run.reporter.stop)
        return self.membership.is_behind(switch.generation) or is_late or is_asked

    # -- one attempt to form a generation -------------------------------------------------------

    def _try(self, switch: Switch, until_s: float) -> None:
        """Raises GenerationAbandonedError if the generation was not formed."""
        numbers = [member.number for member in switch.members]
        self.rank, self.size = numbers.index(self.membership.number), len(numbers)
        first = switch.members[0].address
        try:
            # The first member connects to its own store too, so that its wait can be aborted.
            store, self._store_sockets = tcp_store.connect(first)
            meeting = dist.PrefixStore("/".join(str(each) for each in self._met), store)
            steps = gather_steps(
                meeting,
                numbers,
                own=self.membership.number,
                step=self._training.state.progress.global_step,
                is_over=lambda: self._is_over(switch, until_s),
            )
            if self.membership.is_behind(switch.generation):
                raise GenerationAbandonedError
            # Counted after all have met, so that a late member finds the others under this prefix.
            self._met = (switch.generation, self._met[1] + 1)
            if self.size > 1:
                self._open(meeting, first, abort=self._store_sockets.shut_down)
        except RuntimeError as error:
            print_message(
                f"generation {switch.generation}: members did not connect ({_first_line(error)})"
            )
            raise GenerationAbandonedError from error
        try:
            self._sync_state(steps)
            self._commit()
        except RuntimeError as error:
            if self.group is None or not self.group.is_cause_of(error):
                raise
            print_message(
                f"generation {switch.generation}: first collective failed ({_first_line(error)})"
            )
            raise GenerationAbandonedError from error

    def _open(self, meeting: Any, first: str, *, abort: Callable[[], None]) -> None:
        self.membership.mark_activity(is_step=False)
        self.membership.opened = OpenProcessGroup(self._met[0], abort, is_forming=True)
        ports = {tcp_store.port_of(self._address), tcp_store.port_of(first)}
        self.group = open_group(
            meeting, rank=self.rank, size=self.size, backend=self._backend, ports=ports
        )
        self.membership.opened = OpenProcessGroup(self._met[0], self.group.abort)

    def _sync_state(self, steps: list[int]) -> None:
        """Give all members the state of the most advanced one, or of the newest checkpoint if no
        member has a state."""
        state = self._training.state
        most = max(steps)
        source = steps.index(most)
        if most == FRESH:
            if self.rank == 0 and not self._training.checkpointer.restore():
                state.progress.global_step = 0
        elif min(steps) == most:
            return
        if self.group is None:
            return
        if self.rank == source:
            state_broadcast.send(state.state_dict(), source=source, device=self.group.device)
            return
        keeps = state.progress.global_step < most or most == FRESH
        received = state_broadcast.receive(
            source=source, device=self.group.device, classes=state.classes(), keeps=keeps
        )
        if keeps:
            state.load(received)

    def _commit(self) -> None:
        """Run the first collective of the generation. A member that finishes it knows that all
        members have joined."""
        self._training.run.checkpointer.writes = self.rank == 0
        if self.group is None:
            return
        self._training.model.wrap_ddp(self.group.device)
        # A worker may have failed after a step was applied and before its buffers were broadcast.
        self._training.model.broadcast_buffers()
        progress = self._training.state.progress
        step = progress.global_step
        least, most, epoch = self.group.vote([step, -step, -progress.epoch]).result()
        self.epoch = -epoch
        if least != -most:
            raise AssertionError(f"workers are at different steps: {least} and {-most}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def gather_steps(
    store: Any, numbers: list[int], *, own: int, step: int, is_over: Callable[[], bool]
) -> list[int]:
    """The number of finished steps of each member, by rank. Waits until all members are present.

    `is_over` is polled while waiting. Raises GenerationAbandonedError if it returns True, or
    RuntimeError if the store cannot be reached."""
    store.set(f"in/{own}", str(step))
    keys = [f"in/{number}" for number in numbers]
    while not _are_all_present(store, keys):
        if is_over():
            raise GenerationAbandonedError
    return [int(store.get(key)) for key in keys]


def _are_all_present(store: Any, keys: list[str]) -> bool:
    with contextlib.suppress(dist.DistStoreError):
        store.wait(keys, timedelta(seconds=STORE_WAIT_S))
        return True
    return False
