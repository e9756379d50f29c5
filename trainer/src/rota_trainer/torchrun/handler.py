"""The rendezvous of torchrun's agents at the daemon, which knows who is coming."""

from __future__ import annotations

import os
import socket
import time
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from torch.distributed.elastic.agent.server.api import RunResult, WorkerState
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousConnectionError,
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
    RendezvousTimeoutError,
)
from torch.distributed.elastic.utils.distributed import get_free_port

from rota_trainer.meetings import ARRIVE, LEFT, LONGEST_WAIT_S, MET, OVER, Arrival, Seat
from rota_trainer.messages import to_json
from rota_trainer.place import Place, find_place
from rota_trainer.rendezvous import BACKEND
from rota_trainer.say import say
from rota_trainer.torch_store import RotaStore
from rota_trainer.watch import Watch
from rota_trainer.wire import PATIENCE_S, Wire, WireError

AGAIN_S = 0.2
"""Between two attempts to reach a daemon that is away."""
LOOPBACK = "127.0.0.1"


class Wishes(NamedTuple):
    """What the user may set with `--rdzv-conf`, and who we are."""

    run_id: str
    host: str
    place: Place
    join_timeout_s: float = 600.0
    """How long to wait at the barrier for the others, and for a daemon that is away."""
    failure_wait_s: float = 5.0
    """How long processes that failed may have failed because another agent is gone."""

    @classmethod
    def of(cls, parameters: RendezvousParameters) -> Wishes:
        place = find_place()
        if not place.url:
            raise RendezvousConnectionError(
                "--rdzv-backend rota works inside of a job of rota, and ROTA_URL, ROTA_TOKEN and "
                "ROTA_JOB say that this is none; use --standalone or --rdzv-backend c10d here"
            )
        return cls(
            parameters.run_id,
            parameters.local_addr or _own_host(place.url),
            place,
            _seconds(parameters, "join_timeout", default=cls._field_defaults["join_timeout_s"]),
            _seconds(parameters, "failure_wait", default=cls._field_defaults["failure_wait_s"]),
        )


class RotaRendezvous(RendezvousHandler):
    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._wire = Wire(wishes.place.url, wishes.place.token)
        self._watch = Watch(wishes.place)
        self._seat = Seat("")
        self._store: RotaStore | None = None
        self._met_s = 0.0

    # -- what torch asks ------------------------------------------------------------------------

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._wishes.run_id

    def next_rendezvous(self) -> RendezvousInfo:
        self._watch.rest()
        is_first, arrived_s = self._seat.generation < 0, time.time()
        self._seat = seat = self._arrive()
        self._met_s = time.monotonic()
        # The agent's processes inherit what they report by.
        os.environ["ROTA_GENERATION"] = str(seat.generation)
        if not is_first:
            os.environ["ROTA_BEGAN"] = f"{arrived_s:.3f}"
        self._close_store()
        self._store = RotaStore(self._wishes.place, seat)
        master = RendezvousStoreInfo(seat.host, seat.port)
        return RendezvousInfo(self._store, seat.rank, seat.size, master)

    def num_nodes_waiting(self) -> int:
        """Learnt in the background: this is called several times a second."""
        return int(self._watch.is_called)

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Whether the others may go on is the scheduler's business."""

    def shutdown(self) -> bool:
        self._watch.close()
        self._wire.close()
        self._close_store()
        return True

    # -- what our agent asks --------------------------------------------------------------------

    def judge(self, result: RunResult) -> RunResult:
        """How the processes are, once it is known why. Those that failed because another agent is
        gone are as good as healthy ones that have to come to the barrier again."""
        if result.state == WorkerState.HEALTHY:
            self._watch.follow(self._seat, start_s=time.monotonic() - self._met_s)
        elif result.state == WorkerState.SUCCEEDED:
            self._watch.finish(self._seat)
        elif result.state == WorkerState.FAILED:
            is_called = self._watch.ask(
                self._seat,
                wait_s=self._wishes.failure_wait_s,
                patience_s=self._wishes.join_timeout_s,
            )
            if is_called:
                say("processes failed because the members change; they are started again")
                return RunResult(state=WorkerState.HEALTHY)
        return result

    # -- the barrier ----------------------------------------------------------------------------

    def _arrive(self) -> Seat:
        until = time.monotonic() + self._wishes.join_timeout_s
        while True:
            left_s = until - time.monotonic()
            try:
                seat = self._ask_for_seat(min(LONGEST_WAIT_S, max(0.0, left_s)))
            except WireError as error:
                if error.is_final or error.is_refusal or left_s <= 0:
                    raise RendezvousConnectionError(f"no rendezvous at rota: {error.why}") from None
                time.sleep(AGAIN_S)
                continue
            if seat.state == MET:
                return seat
            if seat.state == LEFT:
                self._leave(seat)
            if seat.state == OVER:
                raise RendezvousClosedError(
                    "a worker of this job has finished, so that all will never meet again"
                )
            if left_s <= 0:
                raise RendezvousTimeoutError(
                    f"not all workers of this job came within {self._wishes.join_timeout_s:g} s; "
                    "`rota show` names them, and --rdzv-conf join_timeout=SECONDS waits longer"
                )

    def _ask_for_seat(self, wait_s: float) -> Seat:
        arrival = Arrival(
            self._wishes.place.worker,
            self._seat.generation,
            self._seat.turn,
            self._wishes.host,
            get_free_port(),
            wait_s,
        )
        answer = self._wire.post(ARRIVE, to_json(arrival), timeout_s=wait_s + PATIENCE_S)
        try:
            return Seat(**answer)
        except TypeError:
            raise WireError(f"no seat: {answer}"[:200]) from None

    def _close_store(self) -> None:
        if self._store is not None:
            self._store.close()

    def _leave(self, seat: Seat) -> NoReturn:
        # torch has an error of its own for this, after which torchrun trips over its own feet.
        say(f"the others go on without this worker (generation {seat.generation}); it ends")
        raise SystemExit(0)


def _own_host(url: str) -> str:
    """Under which the other agents of the job reach this machine: as the daemon does."""
    parts = urlsplit(url)
    if parts.scheme == "unix" or not parts.hostname:
        return LOOPBACK
    family = socket.AF_INET6 if ":" in parts.hostname else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: only the way is looked up.
            probe.connect((parts.hostname, parts.port or 80))
            return str(probe.getsockname()[0])
    except OSError:
        return socket.getfqdn()


def _seconds(parameters: RendezvousParameters, name: str, *, default: Any) -> float:
    value = parameters.get(name, default)
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= 1e9:
        raise ValueError(
            f"--rdzv-conf {name}={value} is no number of seconds; use {name}={default}"
        )
    return seconds
