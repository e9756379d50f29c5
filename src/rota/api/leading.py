"""Which of several daemons commands, as a cluster's Service can see it: by a label of its pod.

All of them are ready, one as the other, so that a new version can be rolled out and a node be
drained; the Service leads to the one with the label.
"""

from __future__ import annotations

import asyncio
import os

import structlog

from rota.engines.kubernetes.api import PODS, ApiError, Cluster

log = structlog.get_logger()

LABEL = "rota.dev/leads"
VARIABLE = "ROTA_POD"
"""The name of the pod that we run in, if we do."""
AGAIN_S = 1.0


async def show_who_leads(cluster: Cluster, *, leads: bool) -> None:
    """A daemon that starts takes back what it said in an earlier life."""
    pod = os.environ.get(VARIABLE, "")
    labels = {LABEL: "true" if leads else None}
    said = ""
    while pod:
        try:
            body = {"metadata": {"labels": labels}}
            await cluster.patch(PODS, pod, body=body, namespace=cluster.access.namespace)
        except ApiError as error:
            if not error.is_passing:
                log.error("our pod cannot be labelled", pod=pod, error=str(error))
                return
            if said != str(error):
                said = str(error)
                log.warning("our pod has to wait for its label", pod=pod, error=said)
            await asyncio.sleep(AGAIN_S)
        else:
            return
