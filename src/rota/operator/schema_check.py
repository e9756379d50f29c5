"""Check that the cluster has the CRD of TrainingJobs, and that it stores every field rota needs."""

from __future__ import annotations

from rota.errors import UnavailableError
from rota.kube.client import KubeClient
from rota.kube.errors import ApiError
from rota.kube.resources import TRAINING_JOBS, Object, ResourceScope, part

REQUIRED_STATUS_FIELDS = frozenset({"accepted", "record", "term"})
"""Status fields that the next daemon reads."""
MISSING = (
    "the cluster has no CRD for TrainingJobs",
    "install it: kubectl apply -f deploy/kubernetes/base/crd.yaml",
)
OUTDATED = (
    "the cluster's CRD for TrainingJobs is of another version and drops fields that rota needs",
    "apply deploy/kubernetes/base/crd.yaml of this version of rota",
)


async def require_schema(client: KubeClient) -> None:
    """Raise if the CRD is missing or lacks required fields."""
    schema = await client.definition(TRAINING_JOBS)
    kept = part(schema, "properties", "status", "properties")
    if schema and not kept.keys() >= REQUIRED_STATUS_FIELDS:
        raise UnavailableError(*OUTDATED)
    if not schema:
        # Some clusters publish no schema; then a list request shows whether the CRD exists.
        try:
            await client.list(TRAINING_JOBS, ResourceScope(client.namespace), is_metadata_only=True)
        except ApiError as error:
            raise list_error(error) from None


def list_error(error: ApiError) -> UnavailableError:
    """The error to raise if TrainingJobs cannot be listed."""
    return UnavailableError(*MISSING) if error.reason == "NotFound" else error


def require_kept(answer: Object, status: Object) -> None:
    """Raise if the cluster dropped the record. A CRD without a field drops it silently."""
    kept = part(answer, "status")
    if kept.get("record") != status["record"]:
        raise UnavailableError(*OUTDATED)
