"""Turns the end of a job into an exit code of the command line.

A job that failed gives the first exit code of its workers that is not 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.cli.output.console import print_error

if TYPE_CHECKING:
    from rota.client import Client
    from rota.wire.jobs import JobView

FAILED = 1
CANCELLED = 143


def wait_for_exit_code(rota: Client, job: str) -> int:
    """Wait until the job ends and return its exit code."""
    return wait_for_end(rota, job)[1]


def wait_for_end(rota: Client, job: str) -> tuple[JobView, int]:
    """Wait until the job ends. Return the job and its exit code.

    A job that did not succeed is reported on stderr.
    """
    ended = rota.wait(job)
    return ended, 0 if ended.state == "succeeded" else _report_failure(rota, ended)


def _report_failure(rota: Client, ended: JobView) -> int:
    from rota.cli.output.jobs import without_search_path
    from rota.client.http import AnswerError

    reason = f": {without_search_path(ended.reason)}" if ended.reason else ""
    print_error(AnswerError(ended.state, f"job {ended.id} ({ended.name}) {ended.state}{reason}"))
    if ended.state == "cancelled":
        return CANCELLED
    attempts = rota.show(ended.id).attempts
    codes = [worker.exit_code for worker in attempts[-1].workers] if attempts else []
    return next((code for code in codes if code), FAILED)
