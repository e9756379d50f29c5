"""The variables that tell a worker the size of its job and its own part of it. Pure.

All engines set the same variables, so that a program runs unchanged on a machine and on a cluster.
"""

from __future__ import annotations

from rota.core.model.allocation import Allocation, n_nodes

ENDPOINT_PREFIXES = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "PODMAN_")
"""Variables with these prefixes tell a container tool which service, and which files of it, to
use."""


def size_variables(allocation: Allocation, rank: int) -> dict[str, str]:
    """The variables of the worker with this rank. The position of a slot is the rank.

    A job with one worker gets no `WORLD_SIZE`: with it, a framework waits for other processes
    instead of starting them.
    """
    n_workers = len(allocation)
    variables = {
        "NUM_GPUS": str(len(allocation[rank].gpus)),
        "ROTA_GPUS": str(sum(len(slot.gpus) for slot in allocation)),
        "ROTA_NODES": str(n_nodes(allocation)),
        "ROTA_PROCESSES": str(n_workers),
        "RANK": str(rank),
    }
    return variables | {"WORLD_SIZE": str(n_workers)} if n_workers > 1 else variables


def chooses_endpoint(variable: str) -> bool:
    return variable.startswith(ENDPOINT_PREFIXES)
