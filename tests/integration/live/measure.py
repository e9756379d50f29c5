"""Measures how long a resize interrupts training, and the cost of the hooks of a step.

python -m tests.integration.live.measure
"""

import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.integration.live.elastic_job import ElasticJob, WorkerForkServer, elastic_job

WIDTHS = {500: "1 million", 2500: "25 million"}
"""Width of the four square layers, and the resulting number of parameters."""
ROUNDS = 3


def main() -> None:
    fork_server = WorkerForkServer()
    try:
        for width, size in WIDTHS.items():
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="live-")))
                measured = stack.enter_context(
                    elastic_job(
                        fork_server, folder, model="wide", width=width, epochs=10**6, **PACE
                    )
                )
                say(f"{size} parameters with Adam: {pauses(measured)}")
        say(f"hooks of a step of 50 ms, two workers, in ms: {hooks(fork_server)}")
    finally:
        fork_server.close()


PACE: dict[str, Any] = {"step_s": 0.05, "journal_hash": False, "batch": 4}


def pauses(measured: ElasticJob) -> str:
    """Resize several times; return the seconds without training beyond a usual step."""
    coordinator = measured.coordinator
    coordinator.want(0)
    coordinator.wait_for_generation()
    found: dict[str, list[float]] = {"grow": [], "shrink": []}
    for number in range(1, ROUNDS + 1):
        for kind, members in (("grow", (0, number)), ("shrink", (0,))):
            coordinator.want(*members)
            coordinator.wait_for_generation()
            coordinator.wait_for_steps(10)
            found[kind].append(gap(measured, coordinator.generation))
    return ", ".join(f"{kind} {[round(each, 3) for each in all_]}" for kind, all_ in found.items())


def gap(measured: ElasticJob, generation: int) -> float:
    """Seconds from the last step of worker 0 before a generation to its first step in it, minus
    a usual step."""
    notes = [note for note in measured.notes("step") if note["worker"] == 0]
    first = next(at for at, note in enumerate(notes) if note["generation"] == generation)
    usual = sorted(b["at_s"] - a["at_s"] for a, b in pairwise(notes))
    return notes[first]["at_s"] - notes[first - 1]["at_s"] - usual[len(usual) // 2]


def hooks(fork_server: WorkerForkServer) -> str:
    """The cost of the hooks in a step, measured inside the worker: the median of all steps, in wall
    time and in processor time. Wall time includes the load of other programs."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="live-")))
        measured = stack.enter_context(
            elastic_job(fork_server, folder, epochs=10**6, times=True, **PACE)
        )
        measured.coordinator.want(0, 1)
        measured.coordinator.wait_for_generation()
        measured.coordinator.wait_for_steps(100)
        notes = measured.notes("hooks_s")
        clock, processor = (
            1000 * sorted(note[kind] for note in notes)[len(notes) // 2]
            for kind in ("hooks_s", "hooks_cpu_s")
        )
        return f"{clock:.2f} by the clock, {processor:.2f} of the processor"


def say(words: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {words}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
