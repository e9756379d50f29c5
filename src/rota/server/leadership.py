"""Waits until this daemon may lead: it holds the lease, and the cluster can store jobs.

`kube.leader_election` acquires and renews the lease; `kubernetes_backend` starts the renewal.
"""

from __future__ import annotations

import asyncio

import structlog

from rota.errors import UnavailableError
from rota.kube.errors import ApiError
from rota.kube.leader_election import LeaderLease
from rota.kube.loop_thread import LoopThread
from rota.operator.training_jobs import TrainingJobClient

log = structlog.get_logger()

RETRY_S = 2.0
CHECK_TIMEOUT_S = 3.0
"""Shorter than the time for which a lease is valid without renewal."""


class LeaderCandidate:
    """A daemon that cannot lead leaves the lease to others, and waits until it can."""

    def __init__(self, lease: LeaderLease, loop_thread: LoopThread) -> None:
        self._lease, self._loop_thread = lease, loop_thread
        self._trouble = ""

    def why(self) -> str:
        """Why this daemon does not lead yet."""
        lease = self._lease
        leads = f"{lease.holder or 'another daemon'} leads; send requests to the leader"
        return self._trouble or lease.problem or leads

    async def wait(self, resources: TrainingJobClient) -> None:
        """Returns when this daemon holds the lease."""
        while True:
            await self._wait_until_storable(resources)
            await self._loop_thread.run(self._lease.acquire())
            try:
                # The definition may have changed since the last check.
                return await asyncio.wait_for(resources.check_schema(), CHECK_TIMEOUT_S)
            except (UnavailableError, TimeoutError) as error:
                self._set_trouble(str(error) or "the cluster does not respond")
                await self._loop_thread.run(self._lease.release())

    async def _wait_until_storable(self, resources: TrainingJobClient) -> None:
        while True:
            try:
                await resources.check()
            except UnavailableError as error:
                if isinstance(error, ApiError) and error.is_transient:
                    # The cluster does not respond: acquiring the lease waits for it.
                    return self._set_trouble("")
                self._set_trouble(str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return self._set_trouble("")

    def _set_trouble(self, trouble: str) -> None:
        """Log each change of the trouble once."""
        if trouble and trouble != self._trouble:
            log.warning("cannot lead, retrying", error=trouble)
        elif self._trouble and not trouble:
            log.info("can lead again")
        self._trouble = trouble
