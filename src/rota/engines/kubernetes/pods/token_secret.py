"""The Secret that holds the token of an attempt, so that the token is in no pod object. Pure.

The pods of one command (a start, or a change of the members) share one Secret. The launcher creates
it after the pods, which own it, and before it removes their gates. Kubernetes deletes it with the
last of these pods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from rota.engines.interface import Program
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.placement import PodPlacement
from rota.engines.kubernetes.pods.state import PodState
from rota.kube.resources import MANAGER, PODS, Object

VARIABLE = "ROTA_TOKEN"
KEY = "token"


def secret_name(placement: PodPlacement, token: str) -> str:
    """Contains a hash of the token: a Secret that exists under this name holds this token."""
    worker = placement.worker
    digest = hashlib.sha256(token.encode()).hexdigest()[:16]
    job = f"{naming.slug(worker.job_id)}-a{worker.attempt}-g{placement.generation}"
    return f"{naming.TOKEN_SECRET_PREFIX}{job}-{digest}"


def token_env(placement: PodPlacement, program: Program) -> list[Object]:
    """The variable with the token, for containers of the pod."""
    if VARIABLE not in program.env:
        return []
    source = {"name": secret_name(placement, program.env[VARIABLE]), "key": KEY}
    return [{"name": VARIABLE, "valueFrom": {"secretKeyRef": source}}]


def secret_of(owners: Sequence[PodState], token: str) -> Object:
    """The Secret that these pods of one job name. Immutable, so that nodes need not watch it."""
    first = owners[0]
    references = [
        {"apiVersion": PODS.group_version, "kind": PODS.kind, "name": each.name, "uid": each.uid}
        for each in owners
    ]
    meta = {
        "name": first.token_secret,
        "labels": {naming.MANAGED_BY: MANAGER, naming.JOB: naming.label(first.worker.job_id)},
        "ownerReferences": references,
    }
    return {"metadata": meta, "immutable": True, "stringData": {KEY: token}}
