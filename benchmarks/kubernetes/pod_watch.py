"""Watches pods through the API server, independently of rota and of the scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.kube.client import KubeClient
from rota.kube.informer import Reflector
from rota.kube.resources import PODS, Object, ResourceScope, WatchEvent


class PodWatch:
    """The running pods of the namespace."""

    def __init__(self, cluster: KubeClient) -> None:
        self.running: set[str] = set()
        self._changed = asyncio.Event()
        scope = ResourceScope(cluster.namespace, fields="status.phase=Running")
        self._reflector = Reflector(cluster, PODS, scope=scope, listener=self._see)

    async def follow(self) -> None:
        await self._reflector.run()

    async def until(self, is_so: Callable[[set[str]], bool], *, what: str, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                while not is_so(self.running):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            n = len(self.running)
            message = f"{what}: not within {within_s:.0f} s; {n:,} pods are running"
            raise RuntimeError(message) from None

    def _see(self, change: WatchEvent) -> None:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]:
            self.running.discard(name)
        else:
            self.running.add(name)
        self._changed.set()


def plain_pod(name: str, *, resource: str = "nvidia.com/gpu") -> Object:
    """A pod that requests one GPU, as users without rota create it."""
    gpu = {resource: "1"}
    container = {
        "name": "main",
        "image": "python:3.12-slim",
        "args": ["sleep", "infinity"],
        "resources": {"requests": gpu, "limits": gpu},
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }
