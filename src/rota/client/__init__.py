"""The Python client of the daemon; the command line uses it too.

In: calls such as `submit`, `wait` or `log_pieces`. Out: the dataclasses of `rota.wire`, or an
exception of `rota.errors`. Read `client.py` first; `endpoint.py` finds the daemon.

from rota.client import Client, JobRequest

with Client() as rota:
    job_id = rota.submit(JobRequest(command=["python", "train.py"], gpus="2"))
    print(rota.wait(job_id).state)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.client.client import Client

if TYPE_CHECKING:
    from rota.wire.job_request import JobRequest

__all__ = ["Client", "JobRequest"]


def __getattr__(name: str) -> Any:
    """Import `JobRequest` when it is used: `rota list` does not need it and must start fast."""
    if name == "JobRequest":
        from rota.wire.job_request import JobRequest  # noqa: PLC0415

        return JobRequest
    raise AttributeError(f"module 'rota.client' has no attribute '{name}'")
