"""The Python client of the daemon; the command line uses it too.

In: calls such as `submit`, `wait` or `log_pieces`. Out: the dataclasses of `rota.wire`, or an
exception of `rota.errors`. Read `client.py` first; `endpoint.py` finds the daemon.

from rota.client import Client, JobRequest

with Client() as rota:
    job_id = rota.submit(JobRequest(command=["python", "train.py"], gpus="2"))
    print(rota.wait(job_id).state)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rota.client.client import Client

if TYPE_CHECKING:
    from rota.wire.job_changes import JobSelection
    from rota.wire.job_request import JobRequest
    from rota.wire.jobs import LogRange

__all__ = ["Client", "JobRequest", "JobSelection", "LogRange"]

ARGUMENTS = {
    "JobRequest": "rota.wire.job_request",
    "JobSelection": "rota.wire.job_changes",
    "LogRange": "rota.wire.jobs",
}
"""Types of arguments of `Client`, with their modules."""


def __getattr__(name: str) -> Any:
    """Import a type when it is used: `rota list` needs none of them and must start fast."""
    if name in ARGUMENTS:
        return getattr(import_module(ARGUMENTS[name]), name)
    raise AttributeError(f"module 'rota.client' has no attribute '{name}'")
