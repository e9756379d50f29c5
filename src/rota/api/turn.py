"""When it is a daemon's turn: the lease is its own, and the cluster keeps what a job needs."""

from __future__ import annotations

import asyncio

import structlog

from rota.engines.kubernetes.api import ApiError
from rota.engines.kubernetes.aside import Aside
from rota.engines.kubernetes.lease import Lease
from rota.engines.kubernetes.resources import Resources
from rota.errors import UnavailableError

log = structlog.get_logger()

AGAIN_S = 2.0
LOOK_S = 3.0
"""So long the lease holds without being renewed, and longer."""


class Turn:
    """Whoever could not command leaves the lease to others, and waits until it could."""

    def __init__(self, lease: Lease, aside: Aside) -> None:
        self._lease, self._aside = lease, aside
        self._trouble = ""

    def why(self) -> str:
        """What is waited for."""
        lease = self._lease
        commands = f"{lease.holder or 'another'} commands: ask that one"
        return self._trouble or lease.trouble or commands

    async def wait(self, resources: Resources) -> None:
        """Returns when the lease is ours."""
        while True:
            await self._until_kept(resources)
            await self._aside.run(self._lease.acquire())
            try:
                # Meanwhile somebody may have changed it.
                return await asyncio.wait_for(resources.look(), LOOK_S)
            except (UnavailableError, TimeoutError) as error:
                self._complain(str(error) or "the cluster does not answer")
                await self._aside.run(self._lease.give_up())

    async def _until_kept(self, resources: Resources) -> None:
        while True:
            try:
                await resources.check()
            except UnavailableError as error:
                if isinstance(error, ApiError) and error.is_passing:
                    # For a cluster that does not answer, who asks for the lease waits.
                    return self._complain("")
                self._complain(str(error))
                await asyncio.sleep(AGAIN_S)
            else:
                return self._complain("")

    def _complain(self, trouble: str) -> None:
        """Once, and again when it is another or over."""
        if trouble and trouble != self._trouble:
            log.warning("this daemon cannot command yet, and waits", error=trouble)
        elif self._trouble and not trouble:
            log.info("this daemon can command")
        self._trouble = trouble
