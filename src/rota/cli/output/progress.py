"""A progress bar on stderr. Nothing is written if stderr is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

MIN_STEP = 0.002

ProgressCallback = Callable[[int, float], None]
"""Called with the index of a label and the finished fraction of its work."""


@contextmanager
def progress(labels: Sequence[str]) -> Generator[ProgressCallback]:
    """Show one bar per label while the block runs."""
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
        # A simulation reports after every job, which is too often to redraw.
        if fraction - shown[line] < MIN_STEP and fraction < 1:
            return
        if not shown[line]:
            bar.start_task(tasks[line])
        shown[line] = fraction
        bar.update(tasks[line], completed=fraction)

    with bar:
        yield report


def _ignore(line: int, fraction: float) -> None:
    """Used if stderr is not a terminal."""
