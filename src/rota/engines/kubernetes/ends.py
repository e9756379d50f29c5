"""How workers go: pods are deleted, held until their end was told, and then let go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from rota.engines.base import WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.api import PODS, ApiError, Cluster
from rota.engines.kubernetes.bodies import KILL_GRACE_S, Body, Stage
from rota.engines.kubernetes.crew import Attempt, Crew
from rota.engines.kubernetes.manifests import grace_s
from rota.engines.kubernetes.transport import NOT_FOUND
from rota.engines.kubernetes.watch import insist
from rota.tasks import Tasks

LET_GO_AT_ONCE = 4
"""What is over can wait for what is to come."""
DELETED_S = 5.0


Collected = Callable[[WorkerId], Awaitable[None]]


class Ends:
    """`collected` returns when a worker's output is on our disk."""

    def __init__(self, cluster: Cluster, crew: Crew, *, tasks: Tasks, collected: Collected) -> None:
        self._cluster, self._crew, self._tasks = cluster, crew, tasks
        self._collected = collected
        self._due: dict[WorkerId, float] = {}
        self._room = asyncio.Semaphore(LET_GO_AT_ONCE)
        self._ending: set[tuple[str, int]] = set()
        """What is being deleted, and with which grace: an order may come again meanwhile."""
        self._leaving: set[str] = set()

    def end(self, body: Body) -> None:
        """As it was asked for: with the grace of a stop, or with that of a kill."""
        wish = self._crew.wish(body.worker)
        is_kill = wish.is_doomed or not wish.is_stopped
        if body.stage is Stage.OVER or (body.is_deleted and (body.is_killed or not is_kill)):
            return
        grace = KILL_GRACE_S if is_kill else grace_s(self._crew.grace_s(body.worker))
        if (body.uid, grace) not in self._ending:
            self._ending.add((body.uid, grace))
            self._tasks.spawn(self._delete(body, grace), pod=body.name)

    def tear_out(self, body: Body) -> None:
        """Of a node that is gone: nobody will ever say that it has ended."""
        self._tasks.spawn(self._remove(body), pod=body.name)

    def let_go_later(self, body: Body, *, after_s: float) -> None:
        """Somebody waits for a pod that was deleted to be gone: it is held no longer than needed
        for its end to be on record."""
        now = asyncio.get_running_loop().time()
        due_s = now + (min(after_s, DELETED_S) if body.is_deleted else after_s)
        self._due[body.worker] = min(due_s, self._due.get(body.worker, due_s))

    def let_go_due(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [worker for worker, due_s in self._due.items() if due_s <= now]
        for worker in due:
            del self._due[worker]
        self.let_go(due)

    def let_go(self, workers: Iterable[WorkerId]) -> None:
        """The records of ends that were told."""
        for worker in workers:
            body = self._crew.bodies.get(worker)
            if body is not None and body.stage is Stage.OVER and body.uid not in self._leaving:
                self._tasks.spawn(self._remove(body), pod=body.name)

    def let_go_of(self, attempts: Iterable[Attempt]) -> None:
        for attempt in attempts:
            self.let_go(self._crew.members(attempt))
            self._crew.forget(attempt)

    async def _delete(self, body: Body, grace: int) -> None:
        try:
            delete = partial(self._cluster.delete, PODS, body.name, grace_s=grace, uid=body.uid)
            await insist(delete, what=body.name)
        finally:
            self._ending.discard((body.uid, grace))

    async def _remove(self, body: Body) -> None:
        self._leaving.add(body.uid)
        try:
            if body.stage is Stage.OVER and not body.is_in_the_way:
                await self._collected(body.worker)
            async with self._room:
                if body.is_held:
                    await insist(partial(self._release, body), what=body.name)
                if not body.is_plain:
                    delete = partial(self._cluster.delete, PODS, body.name, grace_s=0, uid=body.uid)
                    await insist(delete, what=body.name)
        finally:
            self._leaving.discard(body.uid)

    async def _release(self, body: Body) -> None:
        try:
            await self._cluster.let_go(PODS, body.name, uid=body.uid, finalizer=names.FINALIZER)
        except ApiError as error:
            if error.status != NOT_FOUND and error.reason not in ("Conflict", "Invalid"):
                raise
