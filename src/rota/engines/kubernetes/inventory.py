"""From the cluster's nodes, and what others run there, to nodes that we may use. Pure.

An index of a GPU is a place to count by: which card a pod gets is its device plugin's choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rota.core.cards import Whole
from rota.core.model import GIB, Gpu, Node, NodeId
from rota.engines.kubernetes.bodies import MOST_GPUS, condition
from rota.engines.kubernetes.objects import Object, part, parts
from rota.engines.kubernetes.quantities import amount
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.usage import Usage

MIB = 1024**2
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
CORDON = "node.kubernetes.io/unschedulable"
OF_A_CONDITION = frozenset(
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
)
"""Taints that come and go with a node's health: nothing new goes there, what runs stays."""
HARD = ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class Held:
    """What one of our pods holds on a node."""

    gpus: tuple[int, ...]
    is_bound: bool
    usage: Usage


def is_lost(node: Object) -> bool:
    """Whether somebody vouches for it that nothing runs there any more."""
    return any(taint.get("key") == OUT_OF_SERVICE for taint in _taints(node))


def node_of(
    node: Object,
    settings: KubernetesSettings,
    *,
    foreign: Iterable[Usage],
    ours: Iterable[Held],
    before: Node | None = None,
) -> Node:
    """`before` is what was said of it last: what others hold is not moved about without need."""
    theirs, held = list(foreign), list(ours)
    allocatable = part(node, "status", "allocatable")
    taken = Usage(
        sum(each.gpus for each in theirs),
        sum(each.cpus for each in theirs),
        sum(each.memory_bytes for each in theirs),
    )
    seen = Node(
        id=NodeId(node["metadata"]["name"]),
        gpus=_gpus(node, settings, n_taken=taken.gpus, held=held, before=before),
        cpus=max(0.0, amount(allocatable.get("cpu")) - taken.cpus),
        memory_bytes=max(0.0, amount(allocatable.get("memory")) - taken.memory_bytes),
        max_workers=max(0.0, amount(allocatable.get("pods", "110")) - len(theirs)),
        labels=frozenset(part(node, "metadata", "labels").items()),
        is_cordoned=_is_cordoned(node, settings),
    )
    best = _gpus(node, settings, n_taken=0, held=held, before=None)
    whole = Whole(best, seen.cpus, seen.memory_bytes, seen.max_workers)
    if note := _ill(node):
        return replace(_closed(seen, held, note=note), whole=whole, is_cordoned=True)
    return replace(seen, whole=whole) if taken.gpus else seen


def _closed(node: Node, held: list[Held], *, note: str) -> Node:
    """With just the room that is in use: what runs there stays, and stays booked."""
    indices = {index for each in held for index in each.gpus}
    return replace(
        node,
        gpus=tuple(gpu for gpu in node.gpus if gpu.index in indices),
        cpus=sum(each.usage.cpus for each in held),
        memory_bytes=sum(each.usage.memory_bytes for each in held),
        max_workers=float(len(held)),
        note=note,
    )


def _ill(node: Object) -> str:
    ready = condition(node, "Ready")
    if ready.get("status") == "Unknown":
        return "does not answer; what runs there stays booked"
    if ready.get("status") != "True":
        return "is not ready; what runs there stays booked"
    ills = sorted(
        str(taint["key"]).rpartition("/")[2]
        for taint in _taints(node)
        if taint.get("key") in OF_A_CONDITION and taint.get("effect") in HARD
    )
    return f"has a problem: {', '.join(ills)}" if ills else ""


def _is_cordoned(node: Object, settings: KubernetesSettings) -> bool:
    if part(node, "spec").get("unschedulable"):
        return True
    return any(
        taint.get("effect") in HARD
        and taint.get("key") not in OF_A_CONDITION
        and not any(_tolerates(each, taint) for each in settings.tolerations)
        for taint in _taints(node)
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    is_same_key = toleration.get("key") == taint.get("key")
    return is_same_key and (toleration.get("value") or "") == (taint.get("value") or "")


def _gpus(
    node: Object,
    settings: KubernetesSettings,
    *,
    n_taken: int,
    held: list[Held],
    before: Node | None,
) -> tuple[Gpu, ...]:
    status, resource = part(node, "status"), settings.gpu_resource
    n_usable = _count(part(status, "allocatable").get(resource))
    # What a worker was given is there as long as it runs: a node that comes back has no GPUs at
    # all for a while, until its device plugin is back as well.
    bound = {index for each in held if each.is_bound for index in each.gpus}
    n_capacity = _count(part(status, "capacity").get(resource))
    n_all = max(n_usable, n_capacity, *(index + 1 for index in bound))
    planned = {index for each in held for index in each.gpus} - bound
    missed = _missing(before, n_all)

    def reluctance(index: int) -> tuple[bool, bool, bool, int]:
        return index in bound, index in planned, index not in missed, -index

    gone = set(sorted(range(n_all), key=reluctance)[: n_all - n_usable + n_taken]) - bound
    labels = part(node, "metadata", "labels")
    gpu_type = labels.get(f"{resource}.product") or resource.rpartition("/")[2]
    memory_bytes = int(amount(labels.get(f"{resource}.memory")) * MIB) or 16 * GIB
    return tuple(Gpu(index, gpu_type, memory_bytes) for index in range(n_all) if index not in gone)


def _count(text: str | None) -> int:
    return int(min(MOST_GPUS, amount(text)))


def _missing(before: Node | None, n_all: int) -> frozenset[int]:
    """What was not offered last time. A node that was closed says nothing about it."""
    if before is None or before.note:
        return frozenset()
    return frozenset(range(n_all)) - {gpu.index for gpu in before.gpus}


def _taints(node: Object) -> list[Object]:
    return parts(part(node, "spec"), "taints")
