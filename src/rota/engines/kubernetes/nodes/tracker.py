"""Keep the nodes of the cluster up to date, and collect events about nodes that changed."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from rota.core.model.events import NodeLost, NodeSeen
from rota.core.model.node import Node, NodeId
from rota.engines.kubernetes.nodes import inventory
from rota.engines.kubernetes.nodes.inventory import HeldResources, NodeHistory
from rota.engines.kubernetes.pods.requests import PodRequests, requests_of
from rota.engines.kubernetes.pods.state import PodStage, PodState, condition, stage_of
from rota.engines.kubernetes.pods.tracker import PodTracker
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.resources import Object, WatchEvent, part
from rota.tasks import ErrorIsolation

log = structlog.get_logger()

PodKey = tuple[str, str]
GPU_COUNT_TTL_S = 600.0
"""How long a larger GPU count of a node is remembered. Its kubelet or device plugin may be
restarting; until then, a job that needs these GPUs is not reported as impossible."""


@dataclass(frozen=True, slots=True)
class _GpuCount:
    n_gpus: int
    until_s: float = math.inf


class NodeTracker:
    def __init__(
        self,
        settings: KubernetesSettings,
        pod_tracker: PodTracker,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._pod_tracker, self._clock = settings, pod_tracker, clock
        self._objects: dict[str, Object] = {}
        self._known: dict[NodeId, Node] = {}
        self._gpu_counts: dict[str, _GpuCount] = {}
        self._declared_lost: set[str] = set()
        """Nodes that an administrator declared lost; they may come back."""
        self._foreign: defaultdict[str, dict[PodKey, PodRequests]] = defaultdict(dict)
        self._node_of_pod: dict[PodKey, str] = {}
        self._dirty: set[str] = set()
        self._warned: set[str] = set()
        self._isolation = ErrorIsolation("node not read; its last known state counts")

    def nodes(self) -> tuple[Node, ...]:
        """The nodes as of the last `pop_events`. Safe to call from another thread: one atomic
        copy."""
        return tuple(self._known.values())

    def is_gone(self, node: str) -> bool:
        """Whether nothing can run on the node: its object is deleted, it is marked out of
        service, or an administrator declared it lost."""
        known = self._objects.get(node)
        return known is None or inventory.is_lost(known) or node in self._declared_lost

    def give_up(self, node: str) -> None:
        self._declared_lost.add(node)
        self._dirty.add(node)

    def see_node(self, change: WatchEvent) -> None:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED":
            self._objects.pop(name, None)
            self._declared_lost.discard(name)
        else:
            self._objects[name] = _trimmed(change.object)
            if condition(change.object, "Ready").get("status") == "True":
                self._declared_lost.discard(name)
        self._dirty.add(name)

    def see_foreign(self, change: WatchEvent) -> None:
        """A foreign pod uses its requests until it has ended."""
        pod = change.object
        key = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        self._forget_foreign(key)
        node = part(pod, "spec").get("nodeName")
        if change.type == "DELETED" or not node or stage_of(pod) is PodStage.OVER:
            return
        self._node_of_pod[key] = node
        self._foreign[node][key] = requests_of(pod, self._settings.gpu_resource)
        self._dirty.add(node)

    def see_ignored_pod(self, pod_state: PodState, namespace: str) -> None:
        """Count a pod of ours as foreign from now on. Its next watch event has the same effect."""
        key, node = (namespace, pod_state.name), pod_state.node
        if node and pod_state.stage is not PodStage.OVER:
            self._node_of_pod[key] = node
            self._foreign[node][key] = replace(pod_state.usage, gpus=len(pod_state.gpus))
            self._dirty.add(node)

    def recheck(self, node: str) -> None:
        """A pod has left the node. It may have been cordoned only because of that pod."""
        if node in self._objects and inventory.is_tainted(self._objects[node]):
            self._dirty.add(node)

    def forget_expired(self) -> None:
        """Recompute nodes whose remembered GPU count has expired."""
        now = self._clock()
        self._dirty |= {name for name, had in self._gpu_counts.items() if had.until_s <= now}

    def pop_events(self) -> list[NodeSeen | NodeLost]:
        """The events since the last call."""
        events: list[NodeSeen | NodeLost] = []
        dirty, self._dirty = self._dirty, set()
        for name in sorted(dirty):
            with self._isolation.of(node=name):
                events += self._events_of(name)
        return events

    def _events_of(self, name: str) -> list[NodeSeen | NodeLost]:
        node_id = NodeId(name)
        before = self._known.get(node_id)
        if self.is_gone(name):
            self._gpu_counts.pop(name, None)
            return [NodeLost(node_id)] if self._known.pop(node_id, None) else []
        node = self._compute(name, before)
        if node == before:
            return []
        self._known[node_id] = node
        return [NodeSeen(node)]

    def _compute(self, name: str, before: Node | None) -> Node:
        ours = [
            HeldResources(
                pod_state.gpus, bool(pod_state.node), pod_state.usage, pod_state.tolerations
            )
            for pod_state in self._pod_tracker.alive_on(name)
        ]
        foreign = self._foreign.get(name, {}).values()
        node, settings = self._objects[name], self._settings
        self._warn(name, node)
        history = NodeHistory(before, self._remembered(name, inventory.n_usable(node, settings)))
        return inventory.node_of(node, settings, foreign=foreign, ours=ours, history=history)

    def _warn(self, name: str, node: Object) -> None:
        """Once per node: a share of a GPU is counted in bytes."""
        settings = self._settings
        if name in self._warned or not inventory.n_usable(node, settings):
            return
        if not inventory.reports_gpu_memory(node, settings):
            self._warned.add(name)
            what = "node does not report GPU memory; assuming a default for GPU shares"
            label, assumed = f"{settings.gpu_resource}.memory", inventory.DEFAULT_GPU_BYTES
            log.warning(what, node=name, label=label, assumed_bytes=assumed)

    def _remembered(self, name: str, n_gpus: int) -> int:
        """The most GPUs that the node had recently."""
        had, now = self._gpu_counts.get(name, _GpuCount(0)), self._clock()
        if n_gpus >= had.n_gpus or had.until_s <= now:
            had = _GpuCount(n_gpus)
        elif had.until_s == math.inf:
            had = _GpuCount(had.n_gpus, now + GPU_COUNT_TTL_S)
        self._gpu_counts[name] = had
        return had.n_gpus

    def _forget_foreign(self, key: PodKey) -> None:
        node = self._node_of_pod.pop(key, None)
        if node is not None:
            self._foreign[node].pop(key, None)
            self._dirty.add(node)


def _trimmed(node: Object) -> Object:
    """Without the list of images, which is most of a node object."""
    status = part(node, "status")
    kept = {key: status[key] for key in ("allocatable", "capacity", "conditions") if key in status}
    meta = {"name": node["metadata"]["name"], "labels": part(node, "metadata", "labels")}
    return {"metadata": meta, "spec": part(node, "spec"), "status": kept}
