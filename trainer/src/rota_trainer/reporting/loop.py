"""The loop of the reporter thread: sends a report every second and applies the orders it gets.

A report that did not arrive is sent again unchanged, with exponential backoff, so that the daemon
can discard duplicates by their sequence number.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

from rota_trainer.console import print_message
from rota_trainer.progress.memory import MemoryProbe
from rota_trainer.reporting.http import RESPONSE_MARGIN_S, DaemonConnection, DaemonRequestError
from rota_trainer.reporting.messages import (
    EpochRecord,
    Orders,
    StepsRecord,
    TrainingReport,
    to_json,
)
from rota_trainer.reporting.reporter import LAST_REPORT_TIMEOUT_S, Reporter

INTERVAL_S = 1.0
"""The time between reports. The daemon holds its response for this time, and responds immediately
when it has an order."""
BACKOFF_MAX_S = 30.0

_sequences = itertools.count(1)
"""Shared by all runs of a process: the daemon counts reports with the same number once."""


class ReportLoop:
    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._connection = DaemonConnection(reporter.environment.url, reporter.environment.token)
        self._memory = MemoryProbe()
        self._unsent: TrainingReport | None = None
        self._is_disconnected = False

    def run(self) -> None:
        pause_s = 0.0
        while not self._reporter.wait_for_next(pause_s):
            began_s = time.monotonic()
            try:
                answer = self._send(INTERVAL_S, INTERVAL_S + RESPONSE_MARGIN_S)
            except DaemonRequestError as error:
                if self._reporter.ended.is_set():
                    break
                if error.is_final:
                    print_message(f"{error}; reporting is disabled, training continues")
                    return
                self._warn_once(error)
                pause_s = min(BACKOFF_MAX_S, max(INTERVAL_S, 2 * pause_s))
                continue
            self._apply_orders(answer)
            # A response with an order arrives early; the pause keeps the rate of one per second.
            pause_s = max(0.0, INTERVAL_S - (time.monotonic() - began_s))
        self._send_last_report()

    def interrupt(self) -> None:
        """From another thread: end the wait for a response."""
        self._connection.interrupt()

    def _warn_once(self, error: DaemonRequestError) -> None:
        if not self._is_disconnected:
            self._is_disconnected = True
            print_message(f"cannot reach the daemon ({error}); training continues")

    def _apply_orders(self, answer: Orders) -> None:
        self._reporter.take_orders(answer)
        for note in answer.notes:
            print_message(note)
        if self._is_disconnected:
            self._is_disconnected = False
            print_message("the daemon is reachable again")

    def _send_last_report(self) -> None:
        # The connection may be unusable, because `interrupt` ended a wait.
        self._connection.close()
        try:
            was_unsent = self._unsent is not None
            self._send(0.0, LAST_REPORT_TIMEOUT_S)
            if was_unsent:
                self._send(0.0, LAST_REPORT_TIMEOUT_S)
        except DaemonRequestError:
            pass

    def _send(self, wait_s: float, timeout_s: float) -> Orders:
        report = replace(self._next(), wait_s=wait_s)
        try:
            answer = self._connection.send(to_json(report), timeout_s)
        except DaemonRequestError as error:
            if error.is_refusal:
                self._unsent = None
                self._reporter.tally.drop(len(report.steps) + len(report.epochs))
            raise
        self._unsent = None
        return answer

    def _next(self) -> TrainingReport:
        """The unsent report if there is one, unchanged; else a new report."""
        if self._unsent is None:
            self._memory.measure()
            taken: dict[str, Any] = self._reporter.tally.take()
            taken["steps"] = [StepsRecord(*each) for each in taken["steps"]]
            taken["epochs"] = [EpochRecord(*each) for each in taken["epochs"]]
            self._unsent = TrainingReport(
                worker=self._reporter.environment.worker,
                sequence=next(_sequences),
                hears=self._reporter.hears,
                memory_bytes=self._memory.tree_bytes,
                gpu_memory_bytes=self._memory.gpu_bytes,
                **self._reporter.membership,
                **taken,
            )
        return self._unsent
