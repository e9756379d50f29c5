"""Retry a call until the cluster accepts or rejects it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from rota.kube.errors import ApiError
from rota.kube.http import retry_delay_s

log = structlog.get_logger()

RetriedCall = Callable[[], Awaitable[None]]
ErrorListener = Callable[[ApiError], None]


def _ignore_error(_: ApiError) -> None:
    pass


async def retry_until_final(
    call: RetriedCall, *, what: str, on_error: ErrorListener = _ignore_error
) -> None:
    """Retry while errors are transient; raise a permanent error. For writes that must not be
    lost. `on_error` receives each transient error."""
    n_failures = 0
    while True:
        try:
            return await call()
        except ApiError as error:
            if not error.is_transient:
                raise
            if n_failures == 0:
                log.warning("API request failed; retrying", what=what, error=str(error))
            on_error(error)
        await asyncio.sleep(retry_delay_s(n_failures))
        n_failures += 1
