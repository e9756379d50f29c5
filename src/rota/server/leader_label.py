"""Marks the pod of the leading daemon with a label, which the Service of the cluster selects.

All daemons are ready, also those on standby, so that a rollout and a drain of a node can proceed.
Only the leader has the label.
"""

from __future__ import annotations

import asyncio
import os

import structlog

from rota.kube.client import KubeClient
from rota.kube.errors import NOT_FOUND, ApiError
from rota.kube.resources import PODS, ResourceScope, part, parts

log = structlog.get_logger()

LABEL = "rota.dev/leads"
VARIABLE = "ROTA_POD"
"""Environment variable with the name of the daemon's own pod."""
RETRY_S = 1.0
DAEMONS = ("app.kubernetes.io/name=rota", "app.kubernetes.io/component=daemon")
"""Labels of all daemons; the Service selects these and the leader label."""


async def own_claims(cluster: KubeClient) -> frozenset[str]:
    """The claims that the daemon's own pod mounts, if jobs run in the same namespace."""
    pod = os.environ.get(VARIABLE, "")
    if not pod or cluster.access.namespace != cluster.namespace:
        return frozenset()
    volumes = parts(part(await cluster.get(PODS, pod), "spec"), "volumes")
    claims = (part(each, "persistentVolumeClaim").get("claimName") for each in volumes)
    return frozenset(str(each) for each in claims if each)


async def update_leader_label(cluster: KubeClient, *, leads: bool) -> None:
    """Set or remove the label of the own pod. A leader also removes the labels of all others: the
    last leader may be on a node that is gone."""
    pod = os.environ.get(VARIABLE, "")
    last_error = ""
    while pod:
        try:
            await _label(cluster, pod, leads=leads)
            if leads:
                await _clear_other_leaders(cluster, pod)
        except ApiError as error:
            if not error.is_transient:
                log.error("leader label not set", pod=pod, error=str(error))
                return
            if last_error != str(error):
                last_error = str(error)
                log.warning("leader label not set, retrying", pod=pod, error=last_error)
            await asyncio.sleep(RETRY_S)
        else:
            return


async def _clear_other_leaders(cluster: KubeClient, pod: str) -> None:
    labels = ",".join((*DAEMONS, LABEL))
    found, _ = await cluster.list(
        PODS, ResourceScope(cluster.access.namespace, labels), is_metadata_only=True
    )
    for name in (each["metadata"]["name"] for each in found):
        if name != pod:
            log.info("removing leader label of another pod", pod=name)
            await _label(cluster, name, leads=False)


async def _label(cluster: KubeClient, pod: str, *, leads: bool) -> None:
    body = {"metadata": {"labels": {LABEL: "true" if leads else None}}}
    try:
        await cluster.patch(PODS, pod, body=body, namespace=cluster.access.namespace)
    except ApiError as error:
        if leads or error.status != NOT_FOUND:
            raise
