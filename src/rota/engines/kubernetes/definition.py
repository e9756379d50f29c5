"""Whether a cluster knows what a TrainingJob is, and keeps all that one has to hold."""

from __future__ import annotations

from rota.engines.kubernetes.api import TRAINING_JOBS, ApiError, Cluster, Object, Scope
from rota.engines.kubernetes.objects import part
from rota.errors import UnavailableError

RELIED_UPON = frozenset({"accepted", "record", "term"})
"""What a status has to hold for the next daemon."""
MISSING = (
    "the cluster does not know what a TrainingJob is",
    "kubectl apply -f deploy/kubernetes/base/crd.yaml",
)
OUTDATED = (
    "the cluster's definition of TrainingJob is of another version, and drops what a job needs",
    "apply deploy/kubernetes/base/crd.yaml of this version",
)


async def require(cluster: Cluster) -> None:
    told = await cluster.definition(TRAINING_JOBS)
    kept = part(told, "properties", "status", "properties")
    if told and not kept.keys() >= RELIED_UPON:
        raise UnavailableError(*OUTDATED)
    if not told:
        # Some clusters do not say; whether there is one can be seen by its objects.
        try:
            await cluster.list(TRAINING_JOBS, Scope(cluster.namespace), is_brief=True)
        except ApiError as error:
            raise why_not_listed(error) from None


def why_not_listed(error: ApiError) -> UnavailableError:
    """What a refusal to list them means."""
    return UnavailableError(*MISSING) if error.reason == "NotFound" else error


def require_kept(answer: Object, status: Object) -> None:
    """A definition that does not know a field drops it without a word."""
    kept = part(answer, "status")
    if kept.get("record") != status["record"]:
        raise UnavailableError(*OUTDATED)
