"""Whether the daemon can be relied upon: what is wrong with its disks, and how it comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.errors import RotaError, UnavailableError
from rota.store.base import Store

log = structlog.get_logger()

RETRY_S = 1.0
"""How often a disk that failed is tried again."""


class Health:
    """`trouble` is why nothing is accepted and no command leaves; empty if all is well."""

    def __init__(self, store: Store, *, begin_anew: Callable[[], Awaitable[None]]) -> None:
        self.trouble = ""
        self.broken = asyncio.Event()
        """Set when it does not come back by itself."""
        self._store = store
        self._begin_anew = begin_anew
        self._mending: asyncio.Task[None] | None = None

    def require(self) -> None:
        if self.trouble:
            raise UnavailableError(self.trouble, "running jobs go on; try again when it is mended")

    def fail(self, error: UnavailableError | OSError) -> None:
        """Nothing in memory counts any more. What is on the disk does, as soon as it can be
        written again."""
        if self.trouble:
            return
        self.trouble = _words(error)
        log.error("disk failed", error=self.trouble)
        if self._mending is None:
            self._mending = asyncio.get_running_loop().create_task(self._mend())

    def begin(self) -> None:
        """All that is in memory counts, from now on."""
        if not self.broken.is_set():
            self.trouble = ""

    def break_down(self, error: BaseException) -> None:
        """A bug: it does not pass by itself."""
        self.trouble = f"a bug in rota ({type(error).__name__}); start it again, and report it"
        self.broken.set()

    async def close(self) -> None:
        if self._mending is not None:
            self._mending.cancel()
            await asyncio.gather(self._mending, return_exceptions=True)

    async def _mend(self) -> None:
        """Until the store takes a write again, and nothing fails when all begins anew."""
        while self.trouble and not self.broken.is_set():
            await asyncio.sleep(RETRY_S)
            try:
                await asyncio.wrap_future(self._store.resume())
                await self._begin_anew()
            except (RotaError, OSError) as error:
                self.trouble = _words(error)
            except Exception as error:
                log.exception("it cannot begin anew")
                self.break_down(error)
        self._mending = None
        if not self.trouble:
            log.info("disk is back")


def _words(error: RotaError | OSError) -> str:
    if isinstance(error, RotaError):
        return str(error)
    reason = (error.strerror or str(error)).lower()
    what = f"{error.filename}: {reason}" if error.filename else reason
    return f"{what}; rota goes on by itself when that is mended"
