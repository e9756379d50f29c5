"""Harnesses of the engines for the scenarios. Add a harness for a new engine here.

A scenario describes its workers with `WorkerBehavior`, which every harness can execute.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Protocol

import pytest

from rota.core.model.commands import ChangeMembership, Command, StartWorkers, StopWorkers
from rota.core.model.events import (
    Event,
    NodeLost,
    NodeSeen,
    WorkersExited,
    WorkersLost,
    WorkersStarted,
)
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.engines.interface import Engine, Program, WorkerId
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import VirtualGpus
from rota.engines.virtual import run
from rota.engines.virtual.engine import VirtualEngine
from rota.kube.client import connect
from tests.kubernetes.cluster.layout import NODE
from tests.kubernetes.support import pod_programs
from tests.support.timeouts import PATIENCE_S


@dataclass(frozen=True)
class WorkerBehavior:
    """What each worker of a job does: end at once, or run until it is stopped."""

    ends_at_once: bool = True
    writes: str = ""
    """The text that each worker prints first."""


class EngineHarness(Protocol):
    async def order(self, command: Command, work: WorkerBehavior) -> None: ...

    async def next_event(self) -> Event:
        """Wait for the next event of the engine."""
        ...

    async def restart(self) -> set[WorkerId]:
        """Restart the engine on the same state; return the workers that it finds."""
        ...


class RealEngineHarness(EngineHarness, Protocol):
    """A harness with an engine that runs real workers."""

    engine: Engine

    def program(self, work: WorkerBehavior) -> Program: ...


class VirtualEngineHarness(AbstractAsyncContextManager["VirtualEngineHarness"]):
    """Virtual time advances when a test waits for an event."""

    def __init__(self, _: Path) -> None:
        self._works: dict[JobId, WorkerBehavior] = {}
        self._engine = VirtualEngine(self._work_of, run.Delays(start_s=1.0, stop_s=1.0))
        self._now = 0.0
        self._facts: list[Event] = []

    async def __aexit__(self, *_: object) -> None:
        pass

    async def order(self, command: Command, work: WorkerBehavior) -> None:
        self._works[command.job_id] = work
        self._engine.apply(command, self._now)

    async def next_event(self) -> Event:
        while not self._facts:
            self._now = self._engine.next_s()
            assert self._now < float("inf"), "nothing will ever happen again"
            due = self._engine.due(self._now)
            kinds = (WorkersStarted, WorkersExited, WorkersLost)
            self._facts = [fact for fact in due if isinstance(fact, kinds)]
        return self._facts.pop(0)

    async def restart(self) -> set[WorkerId]:
        self._facts += (found := self._engine.found())
        return {WorkerId(f.job_id, f.attempt, each) for f in found for each in f.workers}

    def _work_of(self, job_id: JobId) -> run.VirtualWork:
        run_s = 1.0 if self._works[job_id].ends_at_once else 1e9
        return run.VirtualWork(epochs=1.0, run_s=lambda _: run_s)


class LocalEngineHarness(AbstractAsyncContextManager["LocalEngineHarness"]):
    def __init__(self, folder: Path) -> None:
        self._facts: asyncio.Queue[Event] = asyncio.Queue()
        self._folder = folder
        self.engine = self._made()

    def _made(self) -> LocalEngine:
        return LocalEngine(self._folder, VirtualGpus(4, 16 * GIB))

    async def __aenter__(self) -> "LocalEngineHarness":
        await self.engine.start(self._facts.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in await self.engine.adopt():
            stop = StopWorkers(worker.job_id, worker.attempt, (worker.worker,), 0.0)
            await self.engine.apply(stop)
        while await self.engine.adopt():
            await self.next_event()
        await self.engine.close()

    def program(self, work: WorkerBehavior) -> Program:
        script = f"printf %s {quote(work.writes)}; {'' if work.ends_at_once else 'exec sleep 1000'}"
        return Program(("/bin/sh", "-c", script))

    async def order(self, command: Command, work: WorkerBehavior) -> None:
        await self.engine.apply(command, self.program(work))

    async def next_event(self) -> Event:
        return await asyncio.wait_for(self._facts.get(), PATIENCE_S)

    async def restart(self) -> set[WorkerId]:
        await self.engine.close()
        self.engine = self._made()
        await self.engine.start(self._facts.put_nowait)
        return set(await self.engine.adopt())


class KubernetesEngineHarness(AbstractAsyncContextManager["KubernetesEngineHarness"]):
    """Real pods, on the node of the test cluster that has a kubelet."""

    def __init__(self, folder: Path, kubeconfig: Path, *, namespace: str) -> None:
        self._facts: asyncio.Queue[Event] = asyncio.Queue()
        self._cluster = connect(kubeconfig, namespace=namespace)
        self._folder = folder
        self.engine = self._made()

    def _made(self) -> KubernetesEngine:
        return KubernetesEngine(self._cluster, pod_programs.SETTINGS, root=self._folder)

    async def __aenter__(self) -> "KubernetesEngineHarness":
        await self.engine.start(self._facts.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()
        await self._cluster.close()

    def program(self, work: WorkerBehavior) -> Program:
        waits = "" if work.ends_at_once else "import time; time.sleep(1000)"
        return pod_programs.program(f"print({work.writes!r}, end='', flush=True); {waits}")

    async def order(self, command: Command, work: WorkerBehavior) -> None:
        if isinstance(command, StartWorkers | ChangeMembership):
            slots = tuple(replace(slot, node=NodeId(NODE)) for slot in command.allocation)
            command = replace(command, allocation=slots)
        await self.engine.apply(command, self.program(work))

    async def next_event(self) -> Event:
        """Wait for the next event of a worker: after adoption, an engine reports nodes as well."""
        while True:
            fact = await asyncio.wait_for(self._facts.get(), PATIENCE_S)
            if not isinstance(fact, NodeSeen | NodeLost):
                return fact

    async def restart(self) -> set[WorkerId]:
        await self.engine.close()
        self.engine = self._made()
        await self.engine.start(self._facts.put_nowait)
        return set(await self.engine.adopt())


HARNESSES = {"fake": VirtualEngineHarness, "local": LocalEngineHarness}
"""Harnesses of engines that need only a folder."""
REAL_ENGINES = ("local", pytest.param("kubernetes", marks=pytest.mark.cluster))
ENGINES = ("fake", *REAL_ENGINES)
