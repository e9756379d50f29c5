"""A progress bar on stderr, for people only: a pipe or a log file sees nothing of it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SMALLEST_STEP = 0.002

Report = Callable[[int, float], None]
"""Called with the number of a line and the fraction of it that is done."""


@contextmanager
def progress(labels: Sequence[str]) -> Generator[Report]:
    """One line for each label, as long as the block runs; then they go away."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield _ignore
        return
    name = TextColumn("{task.description}", markup=False)
    bar = Progress(
        name,
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
    tasks = [bar.add_task(label, total=1.0, start=False) for label in labels]
    shown = [0.0] * len(labels)

    def report(line: int, fraction: float) -> None:
        # A run reports every job, which is far more often than anybody can see.
        if fraction - shown[line] < SMALLEST_STEP and fraction < 1:
            return
        if not shown[line]:
            bar.start_task(tasks[line])
        shown[line] = fraction
        bar.update(tasks[line], completed=fraction)

    with bar:
        yield report


def _ignore(line: int, fraction: float) -> None:
    """Nobody is watching."""
