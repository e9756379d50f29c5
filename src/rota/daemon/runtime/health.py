"""Health of the daemon: detects failed disks, and retries until they work again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.errors import RotaError, UnavailableError, os_error_message
from rota.store.interface import Store

log = structlog.get_logger()

RETRY_S = 1.0
"""Pause between two attempts to recover from a failed disk."""


class DaemonHealth:
    """`trouble` is why the daemon accepts no events and sends no commands; empty if healthy."""

    def __init__(self, store: Store, *, recover: Callable[[], Awaitable[None]]) -> None:
        self.trouble = ""
        self.broken = asyncio.Event()
        """Set when only a restart helps."""
        self._store = store
        self._recover = recover
        self._recovery_task: asyncio.Task[None] | None = None

    def require(self) -> None:
        if self.trouble:
            raise UnavailableError(
                self.trouble, "running jobs continue; try again when the problem is solved"
            )

    def fail(self, error: UnavailableError | OSError) -> None:
        """Discard the state in memory, and recover from the disk as soon as it is writable."""
        if self.trouble:
            return
        self.trouble = _error_text(error)
        log.error("disk failed", error=self.trouble)
        if self._recovery_task is None:
            self._recovery_task = asyncio.get_running_loop().create_task(
                self._retry_until_recovered()
            )

    def mark_healthy(self) -> None:
        """The state in memory is valid again."""
        if not self.broken.is_set():
            self.trouble = ""

    def fail_permanently(self, error: BaseException) -> None:
        """Report a bug, which no retry solves."""
        self.trouble = (
            f"a bug in rota ({type(error).__name__}); restart the daemon, and report the bug"
        )
        self.broken.set()

    async def close(self) -> None:
        if self._recovery_task is not None:
            self._recovery_task.cancel()
            await asyncio.gather(self._recovery_task, return_exceptions=True)

    async def _retry_until_recovered(self) -> None:
        """Retry until the store accepts a write and the recovery succeeds."""
        while self.trouble and not self.broken.is_set():
            await asyncio.sleep(RETRY_S)
            try:
                await asyncio.wrap_future(self._store.resume())
                await self._recover()
            except (RotaError, OSError) as error:
                self.trouble = _error_text(error)
            except Exception as error:
                log.exception("recovery failed")
                self.fail_permanently(error)
        self._recovery_task = None
        if not self.trouble:
            log.info("disk recovered")


def _error_text(error: RotaError | OSError) -> str:
    if isinstance(error, RotaError):
        return str(error)
    return f"{os_error_message(error)}; rota retries and continues when the problem is solved"
