"""The cluster's nodes as we may use them: kept up with what changes, and told of when they do."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from rota.core.events import NodeLost, NodeSeen
from rota.core.model import Node, NodeId
from rota.engines.kubernetes import inventory
from rota.engines.kubernetes.bodies import Body, Stage, condition, stage_of
from rota.engines.kubernetes.crew import Crew
from rota.engines.kubernetes.inventory import Held, Past
from rota.engines.kubernetes.objects import Change, Object, part
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.usage import Usage, usage_of

log = structlog.get_logger()

PodKey = tuple[str, str]
REMEMBERED_S = 600.0
"""A node that had more GPUs may have them again: its kubelet or its device plugin may just have
been started anew. For so long, a job that needs them is not one that can never run."""


@dataclass(frozen=True, slots=True)
class _Had:
    n_gpus: int
    until_s: float = math.inf


class Stock:
    def __init__(
        self,
        settings: KubernetesSettings,
        crew: Crew,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._crew, self._clock = settings, crew, clock
        self._objects: dict[str, Object] = {}
        self._known: dict[NodeId, Node] = {}
        self._had: dict[str, _Had] = {}
        self._given_up: set[str] = set()
        """An administrator said that they are gone; they may come back."""
        self._foreign: defaultdict[str, dict[PodKey, Usage]] = defaultdict(dict)
        self._place_of: dict[PodKey, str] = {}
        self._dirty: set[str] = set()
        self._warned_of: set[str] = set()

    def nodes(self) -> tuple[Node, ...]:
        """As of the last `news`. Safe to call from another thread: made in one step."""
        return tuple(self._known.values())

    def is_gone(self, node: str) -> bool:
        """Whether nothing can run there any more: its object is gone, somebody vouches for it, or
        an administrator said so."""
        known = self._objects.get(node)
        return known is None or inventory.is_lost(known) or node in self._given_up

    def give_up(self, node: str) -> None:
        self._given_up.add(node)
        self._dirty.add(node)

    def see_node(self, change: Change) -> None:
        name = change.object["metadata"]["name"]
        if change.type == "DELETED":
            self._objects.pop(name, None)
            self._given_up.discard(name)
        else:
            self._objects[name] = _trimmed(change.object)
            if condition(change.object, "Ready").get("status") == "True":
                self._given_up.discard(name)
        self._dirty.add(name)

    def see_foreign(self, change: Change) -> None:
        """A pod that is not ours takes what it was given for as long as it is not over."""
        pod = change.object
        key = pod["metadata"].get("namespace", ""), pod["metadata"]["name"]
        self._forget_foreign(key)
        node = part(pod, "spec").get("nodeName")
        if change.type == "DELETED" or not node or stage_of(pod) is Stage.OVER:
            return
        self._place_of[key] = node
        self._foreign[node][key] = usage_of(pod, self._settings.gpu_resource)
        self._dirty.add(node)

    def see_spared(self, body: Body, namespace: str) -> None:
        """What was one of ours, as somebody else's; its next change tells the same."""
        key, node = (namespace, body.name), body.node
        if node and body.stage is not Stage.OVER:
            self._place_of[key] = node
            self._foreign[node][key] = replace(body.usage, gpus=len(body.gpus))
            self._dirty.add(node)

    def look_again(self, node: str) -> None:
        """Somebody has left it, for whose sake it may have been closed."""
        if node in self._objects and inventory.is_kept(self._objects[node]):
            self._dirty.add(node)

    def look_at_the_clock(self) -> None:
        """What nodes had is forgotten after a while."""
        now = self._clock()
        self._dirty |= {name for name, had in self._had.items() if had.until_s <= now}

    def news(self) -> list[NodeSeen | NodeLost]:
        """What changed since the last time."""
        told: list[NodeSeen | NodeLost] = []
        dirty, self._dirty = self._dirty, set()
        for name in sorted(dirty):
            node_id = NodeId(name)
            before = self._known.get(node_id)
            if self.is_gone(name):
                self._had.pop(name, None)
                if self._known.pop(node_id, None) is not None:
                    told.append(NodeLost(node_id))
                continue
            node = self._look(name, before)
            if node != before:
                self._known[node_id] = node
                told.append(NodeSeen(node))
        return told

    def _look(self, name: str, before: Node | None) -> Node:
        ours = [
            Held(body.gpus, bool(body.node), body.usage, body.tolerations)
            for body in self._crew.alive_on(name)
        ]
        foreign = self._foreign.get(name, {}).values()
        node, settings = self._objects[name], self._settings
        self._warn(name, node)
        past = Past(before, self._remembered(name, inventory.n_usable(node, settings)))
        return inventory.node_of(node, settings, foreign=foreign, ours=ours, past=past)

    def _warn(self, name: str, node: Object) -> None:
        """Once of each: a share of a GPU is counted in bytes."""
        settings = self._settings
        if name in self._warned_of or not inventory.n_usable(node, settings):
            return
        if not inventory.says_memory(node, settings):
            self._warned_of.add(name)
            what = "a node does not say the memory of its GPUs: shares of them rest upon a guess"
            label, guess = f"{settings.gpu_resource}.memory", inventory.GUESSED_BYTES
            log.warning(what, node=name, label=label, guess_bytes=guess)

    def _remembered(self, name: str, n_gpus: int) -> int:
        """The most GPUs that it had lately."""
        had, now = self._had.get(name, _Had(0)), self._clock()
        if n_gpus >= had.n_gpus or had.until_s <= now:
            had = _Had(n_gpus)
        elif had.until_s == math.inf:
            had = _Had(had.n_gpus, now + REMEMBERED_S)
        self._had[name] = had
        return had.n_gpus

    def _forget_foreign(self, key: PodKey) -> None:
        node = self._place_of.pop(key, None)
        if node is not None:
            self._foreign[node].pop(key, None)
            self._dirty.add(node)


def _trimmed(node: Object) -> Object:
    """Without the images that it holds, which are most of it."""
    status = part(node, "status")
    kept = {key: status[key] for key in ("allocatable", "capacity", "conditions") if key in status}
    meta = {"name": node["metadata"]["name"], "labels": part(node, "metadata", "labels")}
    return {"metadata": meta, "spec": part(node, "spec"), "status": kept}
