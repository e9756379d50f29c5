"""`rota-trainer run`: runs a program in any language and reports its progress.

The program keeps its standard input. Its output is forwarded as it arrives, signals are forwarded
to it, and its exit code becomes the exit code of the wrapper. When rota requests a stop, the
program gets SIGTERM. Progress is read from the program's output, from a CSV file, or both.
"""

from __future__ import annotations

import os
import re
import select
import selectors
import signal
import subprocess
import time
from typing import Any, Callable, NamedTuple

from rota_trainer.console import print_message
from rota_trainer.progress.csv_file import CsvFile
from rota_trainer.progress.observed import ProgressObserver, ProgressUpdate
from rota_trainer.progress.patterns import Pattern
from rota_trainer.progress.tally import Tally
from rota_trainer.reporting.environment import WorkerEnvironment
from rota_trainer.reporting.reporter import Reporter

TICK_S = 0.2
CSV_EVERY_S = 1.0
TREE_S = 0.2
"""SIGTERM and SIGCONT within this time were sent to the whole process tree. A supervisor that stops
a tree sends both, so that suspended processes get the SIGTERM too. The program then has its SIGTERM
already, and forwarding a second one could interrupt its save."""
FORWARDED_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)
NOT_FOUND, NOT_RUN = 127, 126
READ_BYTES = 1 << 16
LONGEST_LINE = 4096
"""The rest of a longer line is forwarded, but not searched for progress."""
_LINE_ENDS = re.compile(rb"[\r\n]+")


class WrapperOptions(NamedTuple):
    """The options of the command line."""

    command: list[str]
    pattern: Pattern | None = None
    csv: CsvFile | None = None
    stop_at_once: bool = False


def run(options: WrapperOptions, environment: WorkerEnvironment) -> int:
    """Run the program to its end; returns its exit code (128 + n if signal n ended it)."""
    wrapper = _Wrapper(options, environment)
    try:
        return wrapper.run()
    finally:
        wrapper.close()


class _Wrapper:
    def __init__(self, options: WrapperOptions, environment: WorkerEnvironment) -> None:
        self._options = options
        self._tally = Tally(environment.epochs_done, environment.epochs_total)
        self._reporter = Reporter(environment, self._tally)
        names = options.pattern.names if options.pattern else frozenset[str]()
        self._reporter.hears = options.stop_at_once or "epoch" in names or options.csv is not None
        self._observer = ProgressObserver(self._tally)
        self._has_asked_to_stop = False
        self._term_s: float | None = None
        self._cont_s = float("-inf")
        self._csv_s = float("-inf")
        self._program: subprocess.Popen[bytes] | None = None
        if options.csv is not None:
            for row in options.csv.poll():
                self._observer.catch_up(row)
        if environment.url:
            self._reporter.start()

    def run(self) -> int:
        signals = _open_signal_pipe()
        try:
            program = self._program = _start(self._options.command)
        except OSError as error:
            print_message(f"cannot run {self._options.command[0]}: {error.strerror}")
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        assert program.stdout is not None
        assert program.stderr is not None
        outputs = [
            OutputTee(os.dup(program.stdout.fileno()), 1, on_line=self._read),
            OutputTee(os.dup(program.stderr.fileno()), 2, on_line=self._read),
        ]
        program.stdout.close()
        program.stderr.close()
        while program.poll() is None:
            self._wait(outputs, signals)
            self._poll()
        for output in outputs:
            output.drain()
        self._read_csv()
        return program.returncode if program.returncode >= 0 else 128 - program.returncode

    def close(self) -> None:
        self._reporter.close()

    def _wait(self, outputs: list[OutputTee], signals: int) -> None:
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
                    key.data.forward()

    def _on_signal(self, number: int) -> None:
        if number == signal.SIGTERM:
            self._term_s = time.monotonic()
        elif number == signal.SIGCONT:
            self._cont_s = time.monotonic()
        elif number in FORWARDED_SIGNALS and not (
            number in TERMINAL_SIGNALS and _is_in_foreground()
        ):
            self._signal(number)

    def _poll(self) -> None:
        now_s = time.monotonic()
        if self._term_s is not None and now_s - self._term_s >= TREE_S:
            if abs(self._term_s - self._cont_s) > TREE_S:
                self._signal(signal.SIGTERM)
            self._term_s = None
        if now_s - self._csv_s >= CSV_EVERY_S:
            self._csv_s = now_s
            self._read_csv()
        if self._options.stop_at_once and self._reporter.stop:
            self._ask_to_stop()

    def _read(self, line: str) -> None:
        progress = self._options.pattern.read(line) if self._options.pattern else None
        if progress is not None:
            self._advance(progress)

    def _read_csv(self) -> None:
        for row in self._options.csv.poll() if self._options.csv else ():
            self._advance(row)

    def _advance(self, progress: ProgressUpdate) -> None:
        before = self._tally.epoch
        self._observer.advance(progress)
        total = self._tally.epochs_total
        is_last = total is not None and self._tally.epoch >= total
        if self._reporter.stop and self._tally.epoch > before and not is_last:
            self._ask_to_stop()

    def _ask_to_stop(self) -> None:
        if not self._has_asked_to_stop:
            self._has_asked_to_stop = True
            print_message("rota requests a stop; sending SIGTERM to the program")
            self._signal(signal.SIGTERM)

    def _signal(self, number: int) -> None:
        if self._program is not None:
            self._program.send_signal(number)


def _is_in_foreground() -> bool:
    """Whether the terminal sends its signals to this process group, which includes the program."""
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


def _open_signal_pipe() -> int:
    """A file descriptor from which the numbers of received signals can be read."""
    read_end, write_end = os.pipe()
    os.set_blocking(read_end, False)
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    for number in (*FORWARDED_SIGNALS, signal.SIGTERM, signal.SIGCONT, signal.SIGCHLD):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _only_wake)
    return read_end


def _only_wake(_number: int, _frame: Any) -> None:
    """Do nothing: the signal number is in the pipe, and the main loop reads it there."""


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    # Python buffers its output if it is not a terminal; progress lines would arrive late.
    env = {"PYTHONUNBUFFERED": "1", **os.environ}
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class OutputTee:
    """Copies the output of a pipe to a file descriptor of this process, and passes each line, cut
    to `LONGEST_LINE`, to `on_line`."""

    def __init__(self, source: int, target: int, *, on_line: Callable[[str], None]) -> None:
        self.source = source
        self._target = target
        self._on_line = on_line
        self._lines = LineSplitter()
        self.is_open = True
        os.set_blocking(source, False)

    def forward(self) -> bool:
        """Copy what the pipe holds now; returns whether it held anything."""
        try:
            read = os.read(self.source, READ_BYTES)
        except BlockingIOError:
            return False
        if not read or not self._write(read):
            self.close()
            return False
        for line in self._lines.take(read):
            self._on_line(line)
        return True

    def drain(self) -> None:
        while self.is_open and self.forward():
            pass
        self.close()

    def close(self) -> None:
        """A program that writes after this gets SIGPIPE, as it would without the wrapper."""
        if self.is_open:
            self.is_open = False
            os.close(self.source)
            for line in self._lines.rest():
                self._on_line(line)

    def _write(self, read: bytes) -> bool:
        left = memoryview(read)
        try:
            while left:
                # Another process that shares our output may have made it non-blocking.
                select.select([], [self._target], [])
                left = left[os.write(self._target, left) :]
        except BlockingIOError:
            return self._write(bytes(left))
        except OSError:
            return False
        return True


class LineSplitter:
    """Splits output into lines. A line ends at a newline or, for progress bars, at a carriage
    return."""

    def __init__(self) -> None:
        self._begun = b""

    def take(self, read: bytes) -> list[str]:
        """The lines that are complete with these bytes."""
        *ended, begun = _LINE_ENDS.split(read)
        if not ended:
            self._begun = self._cut(self._begun, begun)
            return []
        ended[0] = self._cut(self._begun, ended[0])
        self._begun = begun[:LONGEST_LINE]
        return [line[:LONGEST_LINE].decode("utf-8", "replace") for line in ended if line]

    def rest(self) -> list[str]:
        """The last, incomplete line, at the end of the output."""
        begun, self._begun = self._begun, b""
        return [begun.decode("utf-8", "replace")] if begun else []

    def _cut(self, begun: bytes, more: bytes) -> bytes:
        return begun + more[: LONGEST_LINE - len(begun)]
