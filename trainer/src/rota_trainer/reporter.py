"""The background thread that reports and hears orders. Training never waits for it."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import replace
from typing import Any

from rota_trainer.messages import Orders, Report, to_json
from rota_trainer.place import Place
from rota_trainer.say import say
from rota_trainer.tally import Tally

INTERVAL_S = 1.0
"""At most one report in so long; the daemon holds its answer as long, and answers at once when it
has an order."""
BACKOFF_MAX_S = 30.0
FAREWELL_S = 2.0

_sequences = itertools.count(1)
"""One for all runs of a process: the daemon counts a number that comes twice once."""


class Reporter:
    def __init__(self, place: Place, tally: Tally) -> None:
        self._place = place
        self._tally = tally
        self._unsent: Report | None = None
        self._ended = threading.Event()
        self._wire: Any = None
        self._thread: threading.Thread | None = None
        self.orders = Orders()
        """The newest orders; replaced as a whole, so that any thread may read them."""
        self.hears = False
        """Whether the script stops by itself when it is asked to."""

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="rota-trainer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say what is left to say, without waiting long for an answer."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._ended.set()
        wire = self._wire
        if wire is not None:
            wire.hang_up()
        thread.join(FAREWELL_S)

    def abandon(self) -> None:
        """In a forked child: the thread is not here, and what it would say is the parent's."""
        self._thread = None

    def _run(self) -> None:
        from rota_trainer.memory import Memory
        from rota_trainer.wire import PATIENCE_S, Wire, WireError

        self._wire = Wire(self._place.url, self._place.token)
        memory = Memory()
        pause_s, is_lost = 0.0, False
        while not self._ended.wait(pause_s):
            began_s = time.monotonic()
            try:
                answer = self._send(memory, INTERVAL_S, INTERVAL_S + PATIENCE_S)
            except WireError as error:
                if self._ended.is_set():
                    break
                if error.is_final:
                    say(f"{error}; nothing more is reported, training goes on")
                    return
                if not is_lost:
                    say(f"reports do not arrive ({error}); training goes on")
                is_lost = True
                pause_s = min(BACKOFF_MAX_S, max(INTERVAL_S, 2 * pause_s))
                continue
            if is_lost:
                is_lost = False
                say("reports arrive again")
            self._heed(answer)
            # The answer to an order comes at once: the pause keeps to one report a second.
            pause_s = max(0.0, INTERVAL_S - (time.monotonic() - began_s))
        self._say_farewell(memory)

    def _say_farewell(self, memory: Any) -> None:
        from rota_trainer.wire import WireError

        try:
            was_unsent = self._unsent is not None
            self._send(memory, 0.0, FAREWELL_S)
            if was_unsent:
                self._send(memory, 0.0, FAREWELL_S)
        except WireError:
            pass

    def _send(self, memory: Any, wait_s: float, timeout_s: float) -> Orders:
        from rota_trainer.wire import WireError

        report = replace(self._next(memory), wait_s=wait_s)
        try:
            answer: Orders = self._wire.send(to_json(report), timeout_s)
        except WireError as error:
            if error.is_refusal:
                self._unsent = None
                self._tally.drop(len(report.steps) + len(report.epochs))
            raise
        self._unsent = None
        return answer

    def _next(self, memory: Any) -> Report:
        """A report that did not arrive is sent again as it was; what came since waits."""
        if self._unsent is None:
            memory.look()
            taken: Any = self._tally.take()
            self._unsent = Report(
                worker=self._place.worker,
                sequence=next(_sequences),
                generation=self._place.generation,
                hears=self.hears,
                memory_bytes=memory.tree_bytes,
                gpu_memory_bytes=memory.gpu_bytes,
                **taken,
            )
        return self._unsent

    def _heed(self, answer: Orders) -> None:
        self.orders = answer
        for note in answer.notes:
            say(note)
