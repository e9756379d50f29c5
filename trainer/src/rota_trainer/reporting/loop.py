"""What the background thread does: a report a second, orders in the answers, and patience."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

from rota_trainer.memory import Memory
from rota_trainer.messages import EpochRecord, Orders, Report, StepsRecord, to_json
from rota_trainer.reporter import FAREWELL_S, Reporter
from rota_trainer.say import say
from rota_trainer.wire import PATIENCE_S, Wire, WireError

INTERVAL_S = 1.0
"""At most one report in so long; the daemon holds its answer as long, and answers at once when it
has an order."""
BACKOFF_MAX_S = 30.0

_sequences = itertools.count(1)
"""One for all runs of a process: the daemon counts a number that comes twice once."""


class Conversation:
    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._wire = Wire(reporter.place.url, reporter.place.token)
        self._memory = Memory()
        self._unsent: Report | None = None
        self._is_lost = False
        reporter.hang_up = self._wire.hang_up

    def hold(self) -> None:
        pause_s = 0.0
        while not self._reporter.rest(pause_s):
            began_s = time.monotonic()
            try:
                answer = self._send(INTERVAL_S, INTERVAL_S + PATIENCE_S)
            except WireError as error:
                if self._reporter.ended.is_set():
                    break
                if error.is_final:
                    say(f"{error}; nothing more is reported, training goes on")
                    return
                self._say_lost(error)
                pause_s = min(BACKOFF_MAX_S, max(INTERVAL_S, 2 * pause_s))
                continue
            self._heed(answer)
            # The answer to an order comes at once: the pause keeps to one report a second.
            pause_s = max(0.0, INTERVAL_S - (time.monotonic() - began_s))
        self._say_farewell()

    def _say_lost(self, error: WireError) -> None:
        if not self._is_lost:
            self._is_lost = True
            say(f"reports do not arrive ({error}); training goes on")

    def _heed(self, answer: Orders) -> None:
        self._reporter.stop = answer.stop
        self._reporter.on_orders(answer)
        for note in answer.notes:
            say(note)
        if self._is_lost:
            self._is_lost = False
            say("reports arrive again")

    def _say_farewell(self) -> None:
        # The connection may have been hung up to end a wait.
        self._wire.close()
        try:
            was_unsent = self._unsent is not None
            self._send(0.0, FAREWELL_S)
            if was_unsent:
                self._send(0.0, FAREWELL_S)
        except WireError:
            pass

    def _send(self, wait_s: float, timeout_s: float) -> Orders:
        report = replace(self._next(), wait_s=wait_s)
        try:
            answer = self._wire.send(to_json(report), timeout_s)
        except WireError as error:
            if error.is_refusal:
                self._unsent = None
                self._reporter.tally.drop(len(report.steps) + len(report.epochs))
            raise
        self._unsent = None
        return answer

    def _next(self) -> Report:
        """A report that did not arrive is sent again as it was; what came since waits."""
        if self._unsent is None:
            self._memory.look()
            taken: dict[str, Any] = self._reporter.tally.take()
            taken["steps"] = [StepsRecord(*each) for each in taken["steps"]]
            taken["epochs"] = [EpochRecord(*each) for each in taken["epochs"]]
            self._unsent = Report(
                worker=self._reporter.place.worker,
                sequence=next(_sequences),
                hears=self._reporter.hears,
                memory_bytes=self._memory.tree_bytes,
                gpu_memory_bytes=self._memory.gpu_bytes,
                **self._reporter.membership,
                **taken,
            )
        return self._unsent
