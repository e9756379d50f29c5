"""Pods as the API server tells of them, to somebody who is neither a scheduler nor rota."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.engines.kubernetes.api import PODS, Change, Cluster, Object, Scope
from rota.engines.kubernetes.watch import Reflector


class Sight:
    """Which pods of the namespace are running now."""

    def __init__(self, cluster: Cluster) -> None:
        self.running: set[str] = set()
        self._changed = asyncio.Event()
        scope = Scope(cluster.namespace, fields="status.phase=Running")
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

    def _see(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED" or "deletionTimestamp" in change.object["metadata"]:
            self.running.discard(name)
        else:
            self.running.add(name)
        self._changed.set()


def plain_pod(name: str, *, resource: str = "nvidia.com/gpu") -> Object:
    """What people without rota would make: a pod that asks for one GPU."""
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
