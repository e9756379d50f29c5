"""The Python client of the daemon; the command line uses it too.

In: calls such as `submit`, `wait` or `log_pieces`. Out: the dataclasses of `rota.wire`, or an
exception of `rota.errors`. Read `client.py` first; `endpoint.py` finds the daemon.

from rota.client import Client, JobRequest

with Client() as rota:
    job_id = rota.submit(JobRequest(command=["python", "train.py"], gpus="2"))
    print(rota.wait(job_id).state)
"""

from rota.client.client import Client
from rota.wire.jobs import JobRequest

__all__ = ["Client", "JobRequest"]
