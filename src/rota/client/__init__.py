"""The Python client: what the command line itself uses.

from rota.client import Client, JobRequest

with Client() as rota:
    job_id = rota.submit(JobRequest(command=["python", "train.py"], gpus="2"))
    print(rota.wait(job_id).state)
"""

from rota.client.client import Client
from rota.wire.jobs import JobRequest

__all__ = ["Client", "JobRequest"]
