"""Runs any program in any language, and reports what it says of its progress.

The program keeps its standard input, its output is passed on as it comes, signals reach it, and its
exit is ours. It is asked to stop with SIGTERM when rota asks.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from typing import Any, NamedTuple

from rota_trainer.csv_file import CsvFile
from rota_trainer.passing import Passing
from rota_trainer.patterns import Pattern
from rota_trainer.place import Place
from rota_trainer.progress import Observed, Progress
from rota_trainer.reporter import Reporter
from rota_trainer.say import say
from rota_trainer.tally import Tally

TICK_S = 0.2
CSV_EVERY_S = 1.0
TREE_S = 0.2
"""Who stops a whole tree of processes sends SIGCONT along with SIGTERM, so that those that stand
still hear it: then the program has it already, and a second one could cut its saving short."""
PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
NOT_FOUND, NOT_RUN = 127, 126


class Wish(NamedTuple):
    """What the command line asked for."""

    command: list[str]
    pattern: Pattern | None = None
    csv: CsvFile | None = None
    stop_at_once: bool = False


def run(wish: Wish, place: Place) -> int:
    """Until the program is over; its exit code, 128 more than a signal that ended it."""
    wrapper = _Wrapper(wish, place)
    try:
        return wrapper.run()
    finally:
        wrapper.close()


class _Wrapper:
    def __init__(self, wish: Wish, place: Place) -> None:
        self._wish = wish
        self._tally = Tally(place.epochs_done, place.epochs_total)
        self._reporter = Reporter(place, self._tally)
        names = wish.pattern.names if wish.pattern else frozenset[str]()
        self._reporter.hears = wish.stop_at_once or "epoch" in names or wish.csv is not None
        self._observed = Observed(self._tally)
        self._is_asked = False
        self._term_s: float | None = None
        self._cont_s = float("-inf")
        self._csv_s = float("-inf")
        self._program: subprocess.Popen[bytes] | None = None
        if wish.csv is not None:
            for row in wish.csv.poll():
                self._observed.catch_up(row)
        if place.url:
            self._reporter.start()

    def run(self) -> int:
        signals = _hear()
        try:
            program = self._program = _start(self._wish.command)
        except OSError as error:
            say(f"{self._wish.command[0]} cannot be run: {error.strerror}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        assert program.stdout is not None
        assert program.stderr is not None
        outputs = [
            Passing(os.dup(program.stdout.fileno()), 1, hears=self._read),
            Passing(os.dup(program.stderr.fileno()), 2, hears=self._read),
        ]
        program.stdout.close()
        program.stderr.close()
        while program.poll() is None:
            self._wait(outputs, signals)
            self._look()
        for output in outputs:
            output.drain()
        self._read_csv()
        return program.returncode if program.returncode >= 0 else 128 - program.returncode

    def close(self) -> None:
        self._reporter.close()

    def _wait(self, outputs: list[Passing], signals: int) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(signals, selectors.EVENT_READ)
            for output in outputs:
                if output.is_open:
                    selector.register(output.source, selectors.EVENT_READ, output)
            for key, _ in selector.select(TICK_S):
                if key.data is None:
                    for number in os.read(signals, 512):
                        self._on_signal(number)
                else:
                    key.data.pass_on()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGTERM:
            self._term_s = time.monotonic()
        elif number == signal.SIGCONT:
            self._cont_s = time.monotonic()
        elif number in PASSED_ON and not (number in _OF_TERMINAL and _is_at_terminal()):
            self._signal(number)

    def _look(self) -> None:
        now_s = time.monotonic()
        if self._term_s is not None and now_s - self._term_s >= TREE_S:
            if abs(self._term_s - self._cont_s) > TREE_S:
                self._signal(signal.SIGTERM)
            self._term_s = None
        if now_s - self._csv_s >= CSV_EVERY_S:
            self._csv_s = now_s
            self._read_csv()
        if self._wish.stop_at_once and self._reporter.stop:
            self._ask_to_stop()

    def _read(self, line: str) -> None:
        progress = self._wish.pattern.read(line) if self._wish.pattern else None
        if progress is not None:
            self._advance(progress)

    def _read_csv(self) -> None:
        for row in self._wish.csv.poll() if self._wish.csv else ():
            self._advance(row)

    def _advance(self, progress: Progress) -> None:
        before = self._tally.epoch
        self._observed.advance(progress)
        total = self._tally.epochs_total
        is_last = total is not None and self._tally.epoch >= total
        if self._reporter.stop and self._tally.epoch > before and not is_last:
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            say("rota asks to stop; the program gets SIGTERM")
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._program is not None:
            self._program.send_signal(number)


_OF_TERMINAL = (signal.SIGINT, signal.SIGQUIT)


def _is_at_terminal() -> bool:
    """Then the terminal signals the program, too."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _hear() -> int:
    """A file to read the numbers of signals from."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (*PASSED_ON, signal.SIGTERM, signal.SIGCONT, signal.SIGCHLD):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _only_wake)
    return read_end


def _only_wake(_number: int, _frame: Any) -> None:
    """The file says which signal it was, and the loop sees to it."""


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # A program in Python would hold its lines back where it sees no terminal.
    env = {"PYTHONUNBUFFERED": "1", **os.environ}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
