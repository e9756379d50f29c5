"""From the cluster's nodes, and what others run there, to nodes that we may use. Pure.

An index of a GPU is a place to count by: which card a pod gets is its device plugin's choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rota.core.cards import Whole
from rota.core.model import GIB, Gpu, Node, NodeId
from rota.core.taints import tolerates
from rota.engines.kubernetes import taints
from rota.engines.kubernetes.bodies import MOST_GPUS, condition
from rota.engines.kubernetes.objects import Object, part
from rota.engines.kubernetes.quantities import amount
from rota.engines.kubernetes.settings import KubernetesSettings
from rota.engines.kubernetes.usage import Usage, total

MIB = 1024**2
GUESSED_BYTES = 16 * GIB
"""Of a GPU whose node does not say how much memory it has."""
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class Held:
    """What one of our pods holds on a node."""

    gpus: tuple[int, ...]
    is_bound: bool
    usage: Usage
    tolerations: frozenset[str]


@dataclass(frozen=True, slots=True)
class Past:
    """What was said of a node last, so that what others hold is not moved about without need; and
    how many GPUs it had a short while ago, which it may well have again."""

    node: Node | None = None
    n_gpus: int = 0


NO_PAST = Past()


def is_lost(node: Object) -> bool:
    """Whether somebody vouches for it that nothing runs there any more."""
    return any(taint.get("key") == OUT_OF_SERVICE for taint in taints.taints_of(node))


def is_kept(node: Object) -> bool:
    """For some, or from all."""
    return bool(taints.taints_of(node))


def node_of(
    node: Object,
    settings: KubernetesSettings,
    *,
    foreign: Iterable[Usage],
    ours: Iterable[Held],
    past: Past = NO_PAST,
) -> Node:
    theirs, held = list(foreign), list(ours)
    allocatable = part(node, "status", "allocatable")
    taken = total(theirs)
    seen = Node(
        id=NodeId(node["metadata"]["name"]),
        gpus=_gpus(node, settings, n_taken=taken.gpus, held=held, before=past.node),
        cpus=max(0.0, amount(allocatable.get("cpu")) - taken.cpus),
        memory_bytes=max(0.0, amount(allocatable.get("memory")) - taken.memory_bytes),
        max_workers=max(0.0, amount(allocatable.get("pods", "110")) - len(theirs)),
        labels=frozenset(part(node, "metadata", "labels").items()),
        is_cordoned=taints.is_cordoned(node),
    )
    whole = Whole(
        _cards(node, settings, indices=range(max(_n_all(node, settings, held=held), past.n_gpus))),
        seen.cpus,
        seen.memory_bytes,
        seen.max_workers,
    )
    if note := _ill(node):
        return replace(_closed(seen, held, note=note), whole=whole, is_cordoned=True)
    if len(whole.gpus) > len(seen.gpus):
        seen = replace(seen, whole=whole)
    known = taints.known(node, tolerations=settings.tolerations)
    if not known or seen.is_cordoned:
        return seen
    if not all(tolerates(each.tolerations, known) for each in held):
        # Whoever is there goes on, and nobody new comes.
        return replace(seen, is_cordoned=True)
    seen = replace(seen, taints=known)
    strange = taints.shown(node, known)
    return _kept(seen, strange, whole=whole) if strange else seen


def n_usable(node: Object, settings: KubernetesSettings) -> int:
    """How many GPUs its device plugin offers now."""
    return _count(part(node, "status", "allocatable").get(settings.gpu_resource))


def says_memory(node: Object, settings: KubernetesSettings) -> bool:
    """Whether the memory of its GPUs is known."""
    return _memory_bytes(node, settings) > 0


def _kept(node: Node, why: str, *, whole: Whole) -> Node:
    """For few: the others do not count on its GPUs."""
    gpus = tuple(replace(gpu, type=f"{gpu.type} ({why})") for gpu in node.gpus)
    return replace(node, gpus=gpus, whole=whole)


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
        for taint in taints.taints_of(node)
        if taint.get("key") in taints.OF_A_CONDITION and taint.get("effect") in taints.HARD
    )
    return f"has a problem: {', '.join(ills)}" if ills else ""


def _gpus(
    node: Object,
    settings: KubernetesSettings,
    *,
    n_taken: int,
    held: list[Held],
    before: Node | None,
) -> tuple[Gpu, ...]:
    bound = {index for each in held if each.is_bound for index in each.gpus}
    n_all = _n_all(node, settings, held=held)
    planned = {index for each in held for index in each.gpus} - bound
    missed = _missing(before, n_all)

    def reluctance(index: int) -> tuple[bool, bool, bool, int]:
        return index in bound, index in planned, index not in missed, -index

    n_gone = n_all - n_usable(node, settings) + n_taken
    gone = set(sorted(range(n_all), key=reluctance)[:n_gone]) - bound
    return _cards(node, settings, indices=(each for each in range(n_all) if each not in gone))


def _n_all(node: Object, settings: KubernetesSettings, *, held: list[Held]) -> int:
    """With those that are broken. What a worker was given is there as long as it runs: a node that
    comes back has no GPUs at all for a while, until its device plugin is back as well."""
    n_capacity = _count(part(node, "status", "capacity").get(settings.gpu_resource))
    in_use = (index + 1 for each in held if each.is_bound for index in each.gpus)
    return max(n_usable(node, settings), n_capacity, *in_use)


def _cards(
    node: Object, settings: KubernetesSettings, *, indices: Iterable[int]
) -> tuple[Gpu, ...]:
    resource, labels = settings.gpu_resource, part(node, "metadata", "labels")
    gpu_type = labels.get(f"{resource}.product") or resource.rpartition("/")[2]
    memory_bytes = _memory_bytes(node, settings) or GUESSED_BYTES
    return tuple(Gpu(index, gpu_type, memory_bytes) for index in indices)


def _memory_bytes(node: Object, settings: KubernetesSettings) -> int:
    labels = part(node, "metadata", "labels")
    return int(amount(labels.get(f"{settings.gpu_resource}.memory")) * MIB)


def _count(text: str | None) -> int:
    return int(min(MOST_GPUS, amount(text)))


def _missing(before: Node | None, n_all: int) -> frozenset[int]:
    """What was not offered last time. A node that was closed says nothing about it."""
    if before is None or before.note:
        return frozenset()
    return frozenset(range(n_all)) - {gpu.index for gpu in before.gpus}
