"""Delete worker pods: stop them, keep them until their end was reported, then remove the
finalizer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

from rota.engines.interface import WorkerId
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.manifest import grace_s
from rota.engines.kubernetes.pods.state import KILL_GRACE_S, PodStage, PodState
from rota.engines.kubernetes.pods.tracker import AttemptKey, PodTracker
from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.resources import PODS
from rota.kube.retry import retry_until_final
from rota.tasks import Tasks

MAX_CONCURRENT_CLEAN_UPS = 4
"""A limit, so that clean-up does not delay commands."""
KEEP_DELETED_S = 5.0
"""How long an ended pod stays that a user has deleted."""


LogsCollected = Callable[[WorkerId], Awaitable[None]]


class PodDeleter:
    """`collected` returns when the output of a worker is on disk."""

    def __init__(
        self,
        client: KubeClient,
        pod_tracker: PodTracker,
        *,
        tasks: Tasks,
        collected: LogsCollected,
    ) -> None:
        self._client, self._pod_tracker, self._tasks = client, pod_tracker, tasks
        self._collected = collected
        self._due: dict[WorkerId, float] = {}
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_CLEAN_UPS)
        self._deleting: set[tuple[str, int]] = set()
        """Pods that are being deleted, with their grace: the same command may arrive again."""
        self._removing: set[str] = set()

    def end(self, pod_state: PodState) -> None:
        """Delete a pod as requested: with the grace of a stop, or with that of a kill."""
        stop_request = self._pod_tracker.stop_request(pod_state.worker)
        is_kill = stop_request.is_kill or not stop_request.is_stop
        if pod_state.stage is PodStage.OVER or (
            pod_state.is_deleted and (pod_state.is_killed or not is_kill)
        ):
            return
        grace = KILL_GRACE_S if is_kill else grace_s(self._pod_tracker.grace_s(pod_state.worker))
        if (pod_state.uid, grace) not in self._deleting:
            self._deleting.add((pod_state.uid, grace))
            self._tasks.spawn(self._delete(pod_state, grace), pod=pod_state.name)

    def force_remove(self, pod_state: PodState) -> None:
        """Remove the pod of a lost node: no kubelet will report its end."""
        self._tasks.spawn(self._remove(pod_state), pod=pod_state.name)

    def clean_up_later(self, pod_state: PodState, *, after_s: float) -> None:
        """Remove an ended pod after a while. If a user has deleted it, remove it as soon as its
        end is recorded."""
        now = asyncio.get_running_loop().time()
        due_s = now + (min(after_s, KEEP_DELETED_S) if pod_state.is_deleted else after_s)
        self._due[pod_state.worker] = min(due_s, self._due.get(pod_state.worker, due_s))

    def clean_up_due(self) -> None:
        now = asyncio.get_running_loop().time()
        due = [worker for worker, due_s in self._due.items() if due_s <= now]
        for worker in due:
            del self._due[worker]
        self.clean_up(due)

    def clean_up(self, workers: Iterable[WorkerId]) -> None:
        """Remove ended pods whose end was reported."""
        for worker in workers:
            pod_state = self._pod_tracker.pods.get(worker)
            if (
                pod_state is not None
                and pod_state.stage is PodStage.OVER
                and pod_state.uid not in self._removing
            ):
                self._tasks.spawn(self._remove(pod_state), pod=pod_state.name)

    def clean_up_attempts(self, attempts: Iterable[AttemptKey]) -> None:
        """Remove the ended pods of attempts, and forget the attempts."""
        for attempt in attempts:
            self.clean_up(self._pod_tracker.members(attempt))
            self._pod_tracker.forget(attempt)

    async def _delete(self, pod_state: PodState, grace: int) -> None:
        try:
            delete = partial(
                self._client.delete, PODS, pod_state.name, grace_s=grace, uid=pod_state.uid
            )
            await retry_until_final(delete, what=pod_state.name)
        finally:
            self._deleting.discard((pod_state.uid, grace))

    async def _remove(self, pod_state: PodState) -> None:
        self._removing.add(pod_state.uid)
        try:
            if pod_state.stage is PodStage.OVER and not pod_state.is_holding_node:
                await self._collected(pod_state.worker)
            async with self._slots:
                if pod_state.has_finalizer:
                    await retry_until_final(partial(self._release, pod_state), what=pod_state.name)
                if not pod_state.is_external:
                    delete = partial(
                        self._client.delete, PODS, pod_state.name, grace_s=0, uid=pod_state.uid
                    )
                    await retry_until_final(delete, what=pod_state.name)
        finally:
            self._removing.discard(pod_state.uid)

    async def _release(self, pod_state: PodState) -> None:
        try:
            await self._client.remove_finalizer(
                PODS, pod_state.name, uid=pod_state.uid, finalizer=naming.FINALIZER
            )
        except ApiError as error:
            if error.status != NOT_FOUND and error.reason not in ("Conflict", "Invalid"):
                raise
