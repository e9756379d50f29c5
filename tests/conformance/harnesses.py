"""Engines made ready for the scenarios. To bring an engine in, give it a stage here.

A scenario says what a job's workers do in words that every engine can act out: `Work`.
"""

import asyncio
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Protocol

import pytest

from rota.core.commands import ChangeMembership, Command, StartWorkers, StopWorkers
from rota.core.events import Event, NodeLost, NodeSeen, WorkersExited, WorkersLost, WorkersStarted
from rota.core.model import GIB, JobId, NodeId
from rota.engines import fake
from rota.engines.base import Engine, Program, WorkerId
from rota.engines.kubernetes.api import connect
from rota.engines.kubernetes.engine import KubernetesEngine
from rota.engines.local.engine import LocalEngine
from rota.engines.local.gpus import VirtualGpus
from tests.kubernetes import pods
from tests.kubernetes.cluster.places import NODE
from tests.patience import PATIENCE_S


@dataclass(frozen=True)
class Work:
    """What each worker of a job does: end at once, or only when it is asked to."""

    ends_at_once: bool = True
    writes: str = ""
    """First of all, as its output."""


class Stage(Protocol):
    async def order(self, command: Command, work: Work) -> None: ...

    async def next_fact(self) -> Event:
        """The next thing that the engine reports."""
        ...

    async def anew(self) -> set[WorkerId]:
        """The engine is made again, where it was; the workers that it finds."""
        ...


class RealStage(Stage, Protocol):
    """With an engine that has more than virtual time."""

    engine: Engine

    def program(self, work: Work) -> Program: ...


class FakeStage(AbstractAsyncContextManager["FakeStage"]):
    """Virtual time passes when somebody waits for a fact."""

    def __init__(self, _: Path) -> None:
        self._works: dict[JobId, Work] = {}
        self._engine = fake.FakeEngine(self._work_of, fake.Delays(start_s=1.0, stop_s=1.0))
        self._now = 0.0
        self._facts: list[Event] = []

    async def __aexit__(self, *_: object) -> None:
        pass

    async def order(self, command: Command, work: Work) -> None:
        self._works[command.job_id] = work
        self._engine.apply(command, self._now)

    async def next_fact(self) -> Event:
        while not self._facts:
            self._now = self._engine.next_s()
            assert self._now < float("inf"), "nothing will ever happen again"
            due = self._engine.due(self._now)
            kinds = (WorkersStarted, WorkersExited, WorkersLost)
            self._facts = [fact for fact in due if isinstance(fact, kinds)]
        return self._facts.pop(0)

    async def anew(self) -> set[WorkerId]:
        self._facts += (found := self._engine.found())
        return {WorkerId(f.job_id, f.attempt, each) for f in found for each in f.workers}

    def _work_of(self, job_id: JobId) -> fake.Work:
        run_s = 1.0 if self._works[job_id].ends_at_once else 1e9
        return fake.Work(epochs=1.0, run_s=lambda _: run_s)


class LocalStage(AbstractAsyncContextManager["LocalStage"]):
    def __init__(self, folder: Path) -> None:
        self._facts: asyncio.Queue[Event] = asyncio.Queue()
        self._folder = folder
        self.engine = self._made()

    def _made(self) -> LocalEngine:
        return LocalEngine(self._folder, VirtualGpus(4, 16 * GIB))

    async def __aenter__(self) -> "LocalStage":
        await self.engine.start(self._facts.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in await self.engine.adopt():
            stop = StopWorkers(worker.job_id, worker.attempt, (worker.worker,), 0.0)
            await self.engine.apply(stop)
        while await self.engine.adopt():
            await self.next_fact()
        await self.engine.close()

    def program(self, work: Work) -> Program:
        script = f"printf %s {quote(work.writes)}; {'' if work.ends_at_once else 'exec sleep 1000'}"
        return Program(("/bin/sh", "-c", script))

    async def order(self, command: Command, work: Work) -> None:
        await self.engine.apply(command, self.program(work))

    async def next_fact(self) -> Event:
        return await asyncio.wait_for(self._facts.get(), PATIENCE_S)

    async def anew(self) -> set[WorkerId]:
        await self.engine.close()
        self.engine = self._made()
        await self.engine.start(self._facts.put_nowait)
        return set(await self.engine.adopt())


class KubernetesStage(AbstractAsyncContextManager["KubernetesStage"]):
    """Real pods, on the one node of the test cluster that has a kubelet."""

    def __init__(self, folder: Path, kubeconfig: Path, *, namespace: str) -> None:
        self._facts: asyncio.Queue[Event] = asyncio.Queue()
        self._cluster = connect(kubeconfig, namespace=namespace)
        self._folder = folder
        self.engine = self._made()

    def _made(self) -> KubernetesEngine:
        return KubernetesEngine(self._cluster, pods.SETTINGS, root=self._folder)

    async def __aenter__(self) -> "KubernetesStage":
        await self.engine.start(self._facts.put_nowait)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.engine.close()
        await self._cluster.close()

    def program(self, work: Work) -> Program:
        waits = "" if work.ends_at_once else "import time; time.sleep(1000)"
        return pods.program(f"print({work.writes!r}, end='', flush=True); {waits}")

    async def order(self, command: Command, work: Work) -> None:
        if isinstance(command, StartWorkers | ChangeMembership):
            slots = tuple(replace(slot, node=NodeId(NODE)) for slot in command.allocation)
            command = replace(command, allocation=slots)
        await self.engine.apply(command, self.program(work))

    async def next_fact(self) -> Event:
        """Of a worker: once it has adopted, an engine tells of nodes as well."""
        while True:
            fact = await asyncio.wait_for(self._facts.get(), PATIENCE_S)
            if not isinstance(fact, NodeSeen | NodeLost):
                return fact

    async def anew(self) -> set[WorkerId]:
        await self.engine.close()
        self.engine = self._made()
        await self.engine.start(self._facts.put_nowait)
        return set(await self.engine.adopt())


STAGES = {"fake": FakeStage, "local": LocalStage}
"""Those that need nothing but a folder."""
REAL_ENGINES = ("local", pytest.param("kubernetes", marks=pytest.mark.cluster))
ENGINES = ("fake", *REAL_ENGINES)
