"""Deletes ended jobs, old history entries and invalid tokens after their retention period.

Deletions are small batches with pauses between them, so that no other write waits long. Each batch
is one transaction of the store: after a kill at any point, a job is there with all its rows or not
at all, and the next run continues. Usage totals are rows of their own and stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from rota.daemon.access.tokens import Tokens
from rota.daemon.runtime.controller import Controller
from rota.store.interface import Batch, Deletions, Store
from rota.thread_pools import STORE

log = structlog.get_logger()

BATCH_SIZE = 100
PAUSE_FACTOR = 10.0
"""The pause after a batch, relative to the duration of the batch."""


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How long the store keeps jobs and tokens after their end, and entries of the history."""

    jobs_s: float
    entries_s: float


class JobRetention:
    def __init__(
        self,
        controller: Controller,
        store: Store,
        *,
        tokens: Tokens,
        limits: RetentionLimits,
        clock: Callable[[], float],
    ) -> None:
        self._controller = controller
        self._store = store
        self._tokens = tokens
        self._limits = limits
        self._clock = clock

    @property
    def limits(self) -> RetentionLimits:
        return self._limits

    async def prune(self) -> None:
        """Delete everything whose retention period is over. Raises if the store fails."""
        now = self._clock()
        n_jobs = n_entries = 0
        while n := await self._paced(self._prune_jobs, now - self._limits.jobs_s):
            n_jobs += n
        while n := await self._paced(self._prune_entries, now - self._limits.entries_s):
            n_entries += n
        n_tokens = await self._prune_tokens(now - self._limits.jobs_s)
        if n_jobs or n_entries or n_tokens:
            log.info("pruned", jobs=n_jobs, entries=n_entries, tokens=n_tokens)

    async def _paced(self, step: Callable[[float], Awaitable[int]], before_s: float) -> int:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        n_deleted = await step(before_s)
        await asyncio.sleep(PAUSE_FACTOR * (loop.time() - began_s) if n_deleted else 0)
        return n_deleted

    async def _prune_jobs(self, before_s: float) -> int:
        """Delete the oldest jobs. A job that a job in the queue depends on stays."""
        controller = self._controller
        keep = frozenset(controller.dependencies)
        jobs = await STORE.run(self._store.expired_jobs, before_s, keep=keep, limit=BATCH_SIZE)
        # New jobs may depend on some of them by now.
        jobs = [each for each in jobs if each not in controller.dependencies]
        if jobs:
            await self._delete(Deletions(jobs=tuple(jobs)))
            controller.forget_outcomes(jobs)
        return len(jobs)

    async def _prune_entries(self, before_s: float) -> int:
        entries = await STORE.run(self._store.expired_entries, before_s, limit=BATCH_SIZE)
        if entries:
            await self._delete(Deletions(entries=tuple(entries)))
        return len(entries)

    async def _prune_tokens(self, before_s: float) -> int:
        tokens = self._tokens.ended_before(before_s)
        if tokens:
            await self._delete(Deletions(tokens=tuple(tokens)))
            self._tokens.forget(tokens)
        return len(tokens)

    async def _delete(self, deletions: Deletions) -> None:
        self._controller.require_available()
        await self._controller.durable(self._store.write(Batch(deleted=deletions)))
