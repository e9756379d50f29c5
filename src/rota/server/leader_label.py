"""Which of several daemons commands, as a cluster's Service can see it: by a label of its pod.

All of them are ready, one as the other, so that a new version can be rolled out and a node be
drained; the Service leads to the one with the label.
"""

from __future__ import annotations

import asyncio
import os

import structlog

from rota.engines.kubernetes.api import PODS, ApiError, Cluster, Scope
from rota.engines.kubernetes.objects import part, parts
from rota.engines.kubernetes.transport import NOT_FOUND

log = structlog.get_logger()

LABEL = "rota.dev/leads"
VARIABLE = "ROTA_POD"
"""The name of the pod that we run in, if we do."""
AGAIN_S = 1.0
DAEMONS = ("app.kubernetes.io/name=rota", "app.kubernetes.io/component=daemon")
"""Whom the Service leads to, if they have our label, too."""


async def own_claims(cluster: Cluster) -> frozenset[str]:
    """The claims that the pod which we run in has mounted, where jobs could mount them, too."""
    pod = os.environ.get(VARIABLE, "")
    if not pod or cluster.access.namespace != cluster.namespace:
        return frozenset()
    volumes = parts(part(await cluster.get(PODS, pod), "spec"), "volumes")
    claims = (part(each, "persistentVolumeClaim").get("claimName") for each in volumes)
    return frozenset(str(each) for each in claims if each)


async def show_who_leads(cluster: Cluster, *, leads: bool) -> None:
    """A daemon that starts takes back what it said in an earlier life. One that leads takes it back
    for all others: whoever led before may have gone with its node."""
    pod = os.environ.get(VARIABLE, "")
    said = ""
    while pod:
        try:
            await _label(cluster, pod, leads=leads)
            if leads:
                await _alone(cluster, pod)
        except ApiError as error:
            if not error.is_passing:
                log.error("it cannot be shown who leads", pod=pod, error=str(error))
                return
            if said != str(error):
                said = str(error)
                log.warning("who leads cannot be shown yet", pod=pod, error=said)
            await asyncio.sleep(AGAIN_S)
        else:
            return


async def _alone(cluster: Cluster, pod: str) -> None:
    labels = ",".join((*DAEMONS, LABEL))
    found, _ = await cluster.list(PODS, Scope(cluster.access.namespace, labels), is_brief=True)
    for name in (each["metadata"]["name"] for each in found):
        if name != pod:
            log.info("another pod led, and does so no longer", pod=name)
            await _label(cluster, name, leads=False)


async def _label(cluster: Cluster, pod: str, *, leads: bool) -> None:
    body = {"metadata": {"labels": {LABEL: "true" if leads else None}}}
    try:
        await cluster.patch(PODS, pod, body=body, namespace=cluster.access.namespace)
    except ApiError as error:
        if leads or error.status != NOT_FOUND:
            raise
