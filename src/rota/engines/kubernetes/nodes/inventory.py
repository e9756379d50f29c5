"""Turn a node of the cluster, with the pods on it, into a node of the scheduler. Pure.

A GPU index is only for counting: the device plugin decides which GPU a pod gets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rota.core.model.node import Gpu, Node, NodeAllocatable, NodeId, tolerates
from rota.core.model.units import GIB
from rota.engines.kubernetes.nodes import taints
from rota.engines.kubernetes.pods.requests import PodRequests, total_requests
from rota.engines.kubernetes.pods.state import MAX_GPUS, condition
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.kube.quantities import parse_quantity
from rota.kube.resources import Object, part

MIB = 1024**2
DEFAULT_GPU_BYTES = 16 * GIB
"""Assumed memory of a GPU if its node does not report it."""
MAX_GPU_BYTES = 1024 * 1024 * GIB
"""A node that reports more than this is wrong: the number is ignored."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class HeldResources:
    """What one of our pods uses on a node."""

    gpus: tuple[int, ...]
    is_bound: bool
    usage: PodRequests
    tolerations: frozenset[str]


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """`node`: the node as last reported, so that GPUs of foreign pods keep their indices.
    `n_gpus`: the most GPUs that the node had recently; it may have them again."""

    node: Node | None = None
    n_gpus: int = 0


NO_HISTORY = NodeHistory()


def is_lost(node: Object) -> bool:
    """Whether an administrator or the cluster has declared that nothing runs on the node."""
    return any(taint.get("key") == OUT_OF_SERVICE for taint in taints.taints_of(node))


def is_tainted(node: Object) -> bool:
    return bool(taints.taints_of(node))


def node_of(
    node: Object,
    settings: KubernetesSettings,
    *,
    foreign: Iterable[PodRequests],
    ours: Iterable[HeldResources],
    history: NodeHistory = NO_HISTORY,
) -> Node:
    """The node of the scheduler. `foreign`: requests of other pods on it; `ours`: those of our
    pods."""
    theirs, held = list(foreign), list(ours)
    allocatable = part(node, "status", "allocatable")
    taken = total_requests(theirs)
    seen = Node(
        id=NodeId(node["metadata"]["name"]),
        gpus=_gpus(node, settings, n_taken=taken.gpus, held=held, before=history.node),
        cpus=max(0.0, parse_quantity(allocatable.get("cpu")) - taken.cpus),
        memory_bytes=max(0.0, parse_quantity(allocatable.get("memory")) - taken.memory_bytes),
        max_workers=max(0.0, parse_quantity(allocatable.get("pods", "110")) - len(theirs)),
        labels=frozenset(part(node, "metadata", "labels").items()),
        is_cordoned=taints.is_cordoned(node),
    )
    n_whole = max(_n_all(node, settings, held=held), history.n_gpus)
    gpus = _gpus_at(node, settings, indices=range(n_whole))
    whole = NodeAllocatable(gpus, seen.cpus, seen.memory_bytes, seen.max_workers)
    if note := _health_problem(node):
        return replace(_closed(seen, held, note=note), whole=whole, is_cordoned=True)
    if len(whole.gpus) > len(seen.gpus):
        seen = replace(seen, whole=whole)
    known = taints.lasting_taints(node, tolerations=settings.tolerations)
    if not known or seen.is_cordoned:
        return seen
    if not all(tolerates(each.tolerations, known) for each in held):
        # Running workers continue; no new ones start here.
        return replace(seen, is_cordoned=True)
    seen = replace(seen, taints=known)
    untolerated = taints.describe_untolerated(node, known)
    return _reserved(seen, untolerated, whole=whole) if untolerated else seen


def n_usable(node: Object, settings: KubernetesSettings) -> int:
    """How many GPUs the device plugin offers now."""
    return _count(part(node, "status", "allocatable").get(settings.gpu_resource))


def reports_gpu_memory(node: Object, settings: KubernetesSettings) -> bool:
    """Whether the node reports the memory of its GPUs."""
    return _memory_bytes(node, settings) > 0


def _reserved(node: Node, why: str, *, whole: NodeAllocatable) -> Node:
    """Most jobs do not tolerate the taint, so its GPUs get a type of their own."""
    gpus = tuple(replace(gpu, type=f"{gpu.type} ({why})") for gpu in node.gpus)
    return replace(node, gpus=gpus, whole=whole)


def _closed(node: Node, held: list[HeldResources], *, note: str) -> Node:
    """Only the resources in use remain: running workers stay and stay allocated."""
    indices = {index for each in held for index in each.gpus}
    return replace(
        node,
        gpus=tuple(gpu for gpu in node.gpus if gpu.index in indices),
        cpus=sum(each.usage.cpus for each in held),
        memory_bytes=sum(each.usage.memory_bytes for each in held),
        max_workers=float(len(held)),
        note=note,
    )


def _health_problem(node: Object) -> str:
    ready = condition(node, "Ready")
    if ready.get("status") == "Unknown":
        return "does not respond; its workers keep their GPUs"
    if ready.get("status") != "True":
        return "is not ready; its workers keep their GPUs"
    problems = sorted(
        str(taint["key"]).rpartition("/")[2]
        for taint in taints.taints_of(node)
        if taint.get("key") in taints.CONDITION_TAINTS
        and taint.get("effect") in taints.HARD_EFFECTS
    )
    return f"has a problem: {', '.join(problems)}" if problems else ""


def _gpus(
    node: Object,
    settings: KubernetesSettings,
    *,
    n_taken: int,
    held: list[HeldResources],
    before: Node | None,
) -> tuple[Gpu, ...]:
    """The GPUs that our jobs may use. Foreign and broken GPUs are taken from free indices first;
    indices that were missing before are preferred, so that the others do not change."""
    bound = {index for each in held if each.is_bound for index in each.gpus}
    n_all = _n_all(node, settings, held=held)
    planned = {index for each in held for index in each.gpus} - bound
    missing_before = _missing(before, n_all)

    def removal_order(index: int) -> tuple[bool, bool, bool, int]:
        return index in bound, index in planned, index not in missing_before, -index

    n_removed = n_all - n_usable(node, settings) + n_taken
    removed = set(sorted(range(n_all), key=removal_order)[:n_removed]) - bound
    return _gpus_at(node, settings, indices=(each for each in range(n_all) if each not in removed))


def _n_all(node: Object, settings: KubernetesSettings, *, held: list[HeldResources]) -> int:
    """All GPUs, including broken ones. GPUs of a running worker count even if the node does not
    report them: after a reboot a node has none until its device plugin runs."""
    n_capacity = _count(part(node, "status", "capacity").get(settings.gpu_resource))
    in_use = (index + 1 for each in held if each.is_bound for index in each.gpus)
    return max(n_usable(node, settings), n_capacity, *in_use)


def _gpus_at(
    node: Object, settings: KubernetesSettings, *, indices: Iterable[int]
) -> tuple[Gpu, ...]:
    resource, labels = settings.gpu_resource, part(node, "metadata", "labels")
    gpu_type = labels.get(f"{resource}.product") or resource.rpartition("/")[2]
    memory_bytes = _memory_bytes(node, settings) or DEFAULT_GPU_BYTES
    return tuple(Gpu(index, gpu_type, memory_bytes) for index in indices)


def _memory_bytes(node: Object, settings: KubernetesSettings) -> int:
    labels = part(node, "metadata", "labels")
    reported = parse_quantity(labels.get(f"{settings.gpu_resource}.memory")) * MIB
    return int(reported) if reported <= MAX_GPU_BYTES else 0


def _count(text: str | None) -> int:
    return int(min(MAX_GPUS, parse_quantity(text)))


def _missing(before: Node | None, n_all: int) -> frozenset[int]:
    """Indices that were not offered last time. A closed node gives no information."""
    if before is None or before.note:
        return frozenset()
    return frozenset(range(n_all)) - {gpu.index for gpu in before.gpus}
