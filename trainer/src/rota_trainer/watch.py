"""Hears in the background that an agent has to come to the barrier again."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from rota_trainer.meetings import (
    FAILED,
    FINISHED,
    LONGEST_WAIT_S,
    RUNNING,
    WATCH,
    Seat,
    Watching,
)
from rota_trainer.messages import to_json
from rota_trainer.place import Place
from rota_trainer.wire import PATIENCE_S, Wire, WireError

AGAIN_S = 0.2
AGAIN_MAX_S = 2.0
"""Between two attempts to reach a daemon that is away. Training goes on meanwhile."""
FAREWELL_S = 2.0


class Watch:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._wire = Wire(place.url, place.token)
        self._own_wire = Wire(place.url, place.token)
        """For questions that do not wait for the thread's."""
        self._news = threading.Condition()
        self._seat: Seat | None = None
        self._start_s: float | None = None
        self._is_called = False
        self._is_closed = False
        self._thread: threading.Thread | None = None

    @property
    def is_called(self) -> bool:
        return self._is_called

    def follow(self, seat: Seat, *, start_s: float) -> None:
        """Listen for what concerns one who sits there; `start_s` counts at the first call."""
        if seat is self._seat:
            return
        with self._news:
            self._seat, self._start_s, self._is_called = seat, start_s, False
            self._news.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="rota-watch", daemon=True)
            self._thread.start()

    def rest(self) -> None:
        """The agent is at the barrier: there is nothing to listen for."""
        with self._news:
            self._seat, self._is_called = None, False

    def ask(self, seat: Seat, *, wait_s: float, patience_s: float) -> bool:
        """Processes have failed: whether the agent is called within `wait_s`. A daemon that is
        away does not know yet, and is waited for."""
        until = time.monotonic() + patience_s
        while not self._is_called:
            try:
                self._is_called = self._is_news(self._own_wire, seat, state=FAILED, wait_s=wait_s)
            except WireError as error:
                if error.is_final or error.is_refusal or time.monotonic() > until:
                    return False
                time.sleep(AGAIN_S)
                continue
            break
        return self._is_called

    def finish(self, seat: Seat) -> None:
        """Its processes are done: it will not come again, whoever calls."""
        self.rest()
        with suppress(WireError):
            self._is_news(self._own_wire, seat, state=FINISHED, wait_s=0.0)

    def close(self) -> None:
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._wire.hang_up()
        if self._thread is not None:
            self._thread.join(FAREWELL_S)
        self._own_wire.close()

    def _run(self) -> None:
        pause_s = AGAIN_S
        while True:
            with self._news:
                self._news.wait_for(lambda: self._is_closed or self._listens())
                seat = self._seat
            if self._is_closed or seat is None:
                break
            try:
                is_called = self._is_news(self._wire, seat, state=RUNNING, wait_s=LONGEST_WAIT_S)
            except WireError as error:
                if error.is_final:
                    break
                time.sleep(pause_s)
                pause_s = min(AGAIN_MAX_S, 2 * pause_s)
                continue
            pause_s = AGAIN_S
            with self._news:
                if self._seat is seat:
                    self._is_called = self._is_called or is_called
        self._wire.close()

    def _listens(self) -> bool:
        return self._seat is not None and not self._is_called

    def _is_news(self, wire: Wire, seat: Seat, *, state: str, wait_s: float) -> bool:
        watching = Watching(
            self._place.worker,
            seat.generation,
            seat.turn,
            state,
            self._start_s,
            min(wait_s, LONGEST_WAIT_S),
        )
        answer = wire.post(WATCH, to_json(watching), timeout_s=watching.wait_s + PATIENCE_S)
        return answer.get("is_called") is True
