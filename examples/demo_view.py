"""The output of the demo: the queue while it runs, and a summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rota.cli.output.jobs import columns, finish_time
from rota.cli.output.table import draw, percent
from rota.client import Client
from rota.wire.jobs import FINAL_STATES, JobView

URGENT = "urgent"
URGENT_AT = 0.3
"""Progress of training at which the urgent job is submitted."""
REFRESH_S = 0.25
SHOWN = ("name", "user", "state", "gpus", "ran", "done", "left", "ends", "why")


def watch(urgent: Callable[[], None], *, until_s: float) -> dict[str, float]:
    """Show the queue until all jobs have ended, and submit the urgent job during the training.

    Returns the finished epochs of the jobs that were stopped.
    """
    console = Console()
    is_sent = False
    seen: dict[str, str] = {}
    stops: dict[str, float] = {}
    with Client() as rota, Live(console=console, auto_refresh=False) as live:
        while time.monotonic() < until_s:
            jobs = rota.jobs().jobs[::-1]
            if console.is_terminal:
                live.update(table(jobs), refresh=True)
            else:
                print_changes(jobs, seen)
            stops |= {job.id: job.epochs_done for job in jobs if is_stopped(job)}
            if not is_sent and is_amid_training(jobs):
                urgent()
                is_sent = True
            elif is_sent and all(job.state in FINAL_STATES for job in jobs):
                return stops
            time.sleep(REFRESH_S)
    raise SystemExit("rota: the demo did not finish in two minutes; try a less busy machine")


def trains(job: JobView) -> bool:
    return job.epochs is not None and job.epochs > 1


def is_stopped(job: JobView) -> bool:
    return trains(job) and job.state == "queued" and job.attempt > 0


def is_amid_training(jobs: Sequence[JobView]) -> bool:
    """Whether only training jobs are left and all of them run."""
    return all(
        (job.progress or 0.0) >= URGENT_AT if trains(job) else job.state in FINAL_STATES
        for job in jobs
    )


def table(jobs: Sequence[JobView]) -> Text:
    shown = [each for each in columns(jobs, now=time.time()) if each.title in SHOWN]
    lines = [*draw(shown), "", caption(jobs)]
    return Text("\n".join(lines), no_wrap=True, overflow="ellipsis")


def caption(jobs: Sequence[JobView]) -> str:
    """A sentence about the current state."""
    urgent = next((job for job in jobs if job.name == URGENT), None)
    if all(job.state in FINAL_STATES for job in jobs):
        return "All jobs are done."
    if urgent is None:
        has_begun = any(job.progress for job in jobs)
        words = "The jobs report their progress" if has_begun else "The programs start"
        return f"{words}. Soon an urgent job needs three GPUs."
    asked = " and ".join(job.name for job in jobs if trains(job) and job.state == "stopping")
    if asked:
        return f"{asked} is preempted: it saves after its current step and stops."
    waiting = " and ".join(job.name for job in jobs if is_stopped(job))
    if waiting:
        return f"{waiting} waits; none of its work is lost."
    return "The preempted job continues from its checkpoint."


def print_changes(jobs: Sequence[JobView], seen: dict[str, str]) -> None:
    """Without a terminal: print a line after each change."""
    for job in jobs:
        quarter = int(4 * (job.progress or 0.0))
        if seen.get(job.id) != (key := f"{job.state} {quarter}"):
            seen[job.id] = key
            say(f"{time.strftime('%H:%M:%S')}  {job.name:<8} {job.user:<8} {', '.join(facts(job))}")


def facts(job: JobView) -> Generator[str]:
    unit = "GPU" if job.gpus_held in (0.5, 1) else "GPUs"
    yield f"{job.state} on {job.gpus_held:g} {unit}" if job.gpus_held else job.state
    if job.progress and job.state not in FINAL_STATES:
        yield percent(job.progress)
    if job.finish_s is not None and job.state == "running":
        yield f"ends {finish_time(job, now=time.time())}"
    if job.reason:
        yield job.reason


def summary(stops: Mapping[str, float]) -> None:
    with Client() as rota:
        jobs = rota.jobs().jobs[::-1]
        lost_s = sum(rota.show(job.id).lost_s for job in jobs)
    n_good = sum(job.state == "succeeded" for job in jobs)
    n_starts = sum(job.attempt for job in jobs)
    say(f"\n{n_good} of {len(jobs)} jobs succeeded, in {n_starts} attempts.")
    for job in (job for job in jobs if job.id in stops):
        say(
            f"{job.name} was preempted after {stops[job.id]:.3g} epochs, continued from there,"
            f" and has finished {job.epochs_done:g} of {job.epochs:g}."
        )
    say(f"Lost work: {f'{lost_s:.1f} s' if lost_s else 'none'}.")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
