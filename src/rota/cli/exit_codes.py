"""How a job ended, as an exit code: its own where it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.output.lines import complain

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.jobs import JobView

FAILED = 1
CANCELLED = 143


def exit_code(rota: Client, job: str) -> int:
    """Waits for the end. Says on stderr how it was, unless it was a success."""
    return end(rota, job)[1]


def end(rota: Client, job: str) -> tuple[JobView, int]:
    """The same, with the job as it is then."""
    ended = rota.wait(job)
    return ended, 0 if ended.state == "succeeded" else _failed(rota, ended)


def _failed(rota: Client, ended: JobView) -> int:
    reason = f": {ended.reason}" if ended.reason else ""
    complain(f"job {ended.id} ({ended.name}) {ended.state}{reason}")
    if ended.state == "cancelled":
        return CANCELLED
    attempts = rota.show(ended.id).attempts
    codes = [worker.exit_code for worker in attempts[-1].workers] if attempts else []
    return next((code for code in codes if code), FAILED)
