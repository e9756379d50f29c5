"""How a worker gets into the newest generation, however often that takes."""

# torch is typed in parts only.
# pyright: basic, reportPrivateImportUsage=false
from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

import torch.distributed as dist

from rota_trainer.live import stores, transfer
from rota_trainer.live.disk import Disk
from rota_trainer.live.group import Group, open_group
from rota_trainer.live.leaving import Left, Refused
from rota_trainer.live.meeting import GivenUpError, meet
from rota_trainer.live.membership import Membership, Opened
from rota_trainer.live.model import ElasticModel
from rota_trainer.live.parts import FRESH, Parts
from rota_trainer.live.sockets import Connections
from rota_trainer.messages import Switch
from rota_trainer.run import Run
from rota_trainer.say import say
from rota_trainer.stops import Stopped

LISTEN_S = 0.2
RETRY_S = 1.0
"""Whoever is gone is told of by then. If nobody is, the same generation meets once more."""


class NobodyCameError(Exception):
    """No generation came about in the time that was given; the words say what was last tried."""


class Training(NamedTuple):
    """What is trained, and where it is kept."""

    run: Run
    parts: Parts
    model: ElasticModel
    disk: Disk


class Joining:
    def __init__(self, training: Training, *, identity: str, backend: str | None) -> None:
        self.rank, self.size = 0, 1
        self.epoch = 0
        """The farthest that any member was in when the generation began."""
        self.group: Group | None = None
        self._way: Connections | None = None
        """To the store at which the newest generation meets."""
        self._training = training
        self._backend = backend
        self._met = (-1, 0)
        """The newest generation that was tried, and how often all of it have met."""
        self._served, self._address = stores.serve()
        run = training.run
        self.membership = Membership(
            run.place, run.reporter, identity=identity, address=self._address
        )

    def enter(self, patience_s: float) -> None:
        """Raises NobodyCameError, Left or Refused, or what is wrong with the state."""
        began_s = time.monotonic()
        self.membership.moved(is_step=False)
        while True:
            switch = self._wait_for_switch(began_s + patience_s)
            try:
                self._try(switch, began_s + patience_s)
            except GivenUpError:
                self.leave_group()
                continue
            at = self._training.parts.at
            self.membership.generation = switch.generation
            self.membership.moved(is_step=False)
            self.membership.tell(step=at.global_step, pause_s=time.monotonic() - began_s)
            return

    def leave_group(self) -> None:
        self.membership.opened = None
        self._training.model.gather()
        group, self.group = self.group, None
        if group is not None:
            group.close()
        if self._way is not None:
            self._way.close()

    def go_alone(self) -> NoReturn:
        """Somebody ends this worker and not the others: they go on, and have all that it knew."""
        say("SIGTERM: this worker goes, and the others go on")
        self.leave_group()
        # They wait for its end, in which Python would look through all of torch for garbage.
        gc.freeze()
        raise Stopped("SIGTERM")

    # -- waiting --------------------------------------------------------------------------------

    def _wait_for_switch(self, until_s: float) -> Switch:
        """The newest that this worker belongs to; one that failed is tried again."""
        members = self.membership
        while True:
            if members.refused and members.generation < 0:
                say(f"this worker may not join: {members.refused}")
                raise Refused(members.refused)
            switch = members.newest
            if switch is not None and members.is_in(switch):
                if switch.generation != self._met[0]:
                    self._met = (switch.generation, 0)
                    return switch
                members.wait(RETRY_S)
                if not self._is_over(switch, until_s):
                    return switch
            elif switch is not None and members.is_left_out(switch):
                say("the others go on without this worker, as planned")
                raise Left
            self._check_patience(until_s)
            members.wait(LISTEN_S)

    def _check_patience(self, until_s: float) -> None:
        reason = self._training.run.reporter.stop
        if reason or self._training.run.should_stop:
            raise NobodyCameError(reason or "SIGTERM")
        if time.monotonic() > until_s:
            raise NobodyCameError("a worker is gone, and nobody said who goes on")

    def _is_over(self, switch: Switch, until_s: float) -> bool:
        """Whether there is something better to do than to wait for the others."""
        is_late = time.monotonic() > until_s
        is_asked = self._training.run.should_stop or bool(self._training.run.reporter.stop)
        return self.membership.is_behind(switch.generation) or is_late or is_asked

    # -- one attempt ----------------------------------------------------------------------------

    def _try(self, switch: Switch, until_s: float) -> None:
        """Raises GivenUpError if it did not come about."""
        numbers = [member.number for member in switch.members]
        self.rank, self.size = numbers.index(self.membership.number), len(numbers)
        first = switch.members[0].address
        try:
            # The first as well, so that its wait can be ended.
            store, self._way = stores.connect(first)
            place = dist.PrefixStore("/".join(str(each) for each in self._met), store)
            steps = meet(
                place,
                numbers,
                own=self.membership.number,
                step=self._training.parts.at.global_step,
                is_over=lambda: self._is_over(switch, until_s),
            )
            if self.membership.is_behind(switch.generation):
                raise GivenUpError
            # Not before: who could not come at first finds the others where they wait for it.
            self._met = (switch.generation, self._met[1] + 1)
            if self.size > 1:
                self._open(place, first, give_up=self._way.end)
        except RuntimeError as error:
            say(f"generation {switch.generation} did not meet ({_first_line(error)})")
            raise GivenUpError from error
        try:
            self._have_state(steps)
            self._commit()
        except RuntimeError as error:
            if self.group is None or not self.group.is_why(error):
                raise
            say(f"generation {switch.generation} broke as it began ({_first_line(error)})")
            raise GivenUpError from error

    def _open(self, place: Any, first: str, *, give_up: Callable[[], None]) -> None:
        self.membership.moved(is_step=False)
        self.membership.opened = Opened(self._met[0], give_up, is_forming=True)
        ports = {stores.port_of(self._address), stores.port_of(first)}
        self.group = open_group(
            place, rank=self.rank, size=self.size, backend=self._backend, ports=ports
        )
        self.membership.opened = Opened(self._met[0], self.group.abort)

    def _have_state(self, steps: list[int]) -> None:
        """All have the state of the one that is farthest, or of the disk if nobody has any."""
        parts = self._training.parts
        most = max(steps)
        source = steps.index(most)
        if most == FRESH:
            if self.rank == 0 and not self._training.disk.restore():
                parts.at.global_step = 0
        elif min(steps) == most:
            return
        if self.group is None:
            return
        if self.rank == source:
            transfer.send(parts.state(), source=source, device=self.group.device)
            return
        keeps = parts.at.global_step < most or most == FRESH
        received = transfer.receive(
            source=source, device=self.group.device, classes=parts.classes(), keeps=keeps
        )
        if keeps:
            parts.load(received)

    def _commit(self) -> None:
        """The first collective of the generation: whoever finishes it knows that all are in it."""
        self._training.run.keeping.writes = self.rank == 0
        if self.group is None:
            return
        self._training.model.spread(self.group.device)
        # A worker may have died after a step was applied and before its statistics were shared.
        self._training.model.buffers_together()
        at = self._training.parts.at
        step = at.global_step
        least, most, epoch = self.group.vote([step, -step, -at.epoch]).result()
        self.epoch = -epoch
        if least != -most:
            raise AssertionError(f"workers are at different steps: {least} and {-most}")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
