"""Measures a worker of the local engine from the command to its reported exit.

    python benchmarks/local_engine.py [--workers 200] [--at-once 8]

Workers do nothing. They run first one after the other, then several at once. `--folder` puts the
engine's files on another disk.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.events import Event, WorkersExited, WorkersStarted
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import Program
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import VirtualGpus

NOTHING = Program(("true",))
SLOTS = (Slot(NodeId("here"), (0,)),)


class Clock:
    """Start and end of each job, in seconds since its command."""

    def __init__(self) -> None:
        self.started: list[float] = []
        self.ended: list[float] = []
        self._ordered: dict[JobId, float] = {}
        self._ends: dict[JobId, asyncio.Event] = {}

    def order(self, job_id: JobId) -> asyncio.Event:
        self._ordered[job_id] = time.perf_counter()
        self._ends[job_id] = asyncio.Event()
        return self._ends[job_id]

    def hear(self, fact: Event) -> None:
        now = time.perf_counter()
        if isinstance(fact, WorkersStarted):
            self.started.append(now - self._ordered[fact.job_id])
        elif isinstance(fact, WorkersExited):
            self.ended.append(now - self._ordered[fact.job_id])
            self._ends[fact.job_id].set()


async def run(engine: LocalEngine, clock: Clock, *, name: str, at_once: int, n: int) -> float:
    """Run `n` workers and return the total seconds."""
    numbers = iter(range(n))

    async def lane() -> None:
        for number in numbers:
            job_id = JobId(f"{name}-{number}")
            end = clock.order(job_id)
            await engine.apply(StartWorkers(job_id, 1, 0, SLOTS), NOTHING)
            await end.wait()

    start = time.perf_counter()
    await asyncio.gather(*(lane() for _ in range(at_once)))
    return time.perf_counter() - start


async def measure(folder: Path, *, n: int, at_once: int) -> None:
    clock = Clock()
    engine = LocalEngine(folder, VirtualGpus(8, 16 * GIB))
    await engine.start(clock.hear)
    await run(engine, clock, name="warm", at_once=1, n=5)
    print("| workers at once | per worker | to the start, median | to the end, median | p95 |")
    print("|---|---|---|---|---|")
    for lanes in dict.fromkeys((1, at_once)):
        clock.started.clear()
        clock.ended.clear()
        seconds = await run(engine, clock, name=f"at-{lanes}", at_once=lanes, n=n)
        started, ended = sorted(clock.started), sorted(clock.ended)
        figures = [seconds / n, statistics.median(started), statistics.median(ended)]
        figures.append(ended[int(len(ended) * 0.95)])
        print(f"| {lanes} |", " | ".join(f"{figure * 1000:.1f} ms" for figure in figures), "|")
    await engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="What a worker costs on the local engine.")
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        asyncio.run(measure(Path(folder), n=arguments.workers, at_once=arguments.at_once))


if __name__ == "__main__":
    main()
