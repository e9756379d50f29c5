"""Finds out whether an empty cluster could ever run a job, and what stands in the way."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from rota.core.model import GIB, JobSpec, Node, Share
from rota.errors import shown

ROUNDING = 1e-9
MOST_KNOWN = 1000


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a job never fits: the field that is to blame, and the sentence."""

    field: str
    message: str
    hint: str = ""


class _Part:
    """A node as a job sees it that runs on one type of GPU."""

    __slots__ = ("cards", "node")

    def __init__(self, node: Node, kind: str) -> None:
        self.node = node
        self.cards = [gpu.memory_bytes for gpu in node.gpus if gpu.type == kind]

    def n_shares(self, share: Share) -> int:
        return sum(card // share.bytes_on(card) for card in self.cards)


class Misfits:
    """Of many jobs on the same nodes: those that need the same are looked at once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._known: dict[tuple[object, ...], Misfit | None] = {}

    def of(self, spec: JobSpec) -> Misfit | None:
        needs = _needs(spec)
        if needs not in self._known:
            if len(self._known) == MOST_KNOWN:
                self._known.clear()
            self._known[needs] = _misfit(spec, self.nodes)
        return self._known[needs]


def at_best(node: Node) -> Node:
    """Once others let go of what they hold there, and it is well."""
    best = node.whole
    if best is None:
        return node
    room = {"cpus": best.cpus, "memory_bytes": best.memory_bytes, "max_workers": best.max_workers}
    return replace(node, gpus=best.gpus, whole=None, taints=(), **room)


def _needs(spec: JobSpec) -> tuple[object, ...]:
    return (
        (spec.min_workers, spec.requested_workers, spec.max_workers, spec.gpus, spec.share),
        (spec.gpu_types, spec.node_labels, spec.cpus, spec.memory_bytes),
    )


def _misfit(spec: JobSpec, nodes: Sequence[Node]) -> Misfit | None:
    """The narrowest reason that fits, so that the message names what to change."""
    if not spec.min_workers <= spec.requested_workers <= spec.max_workers:
        size = f"{spec.requested_workers} of {spec.min_workers}..{spec.max_workers} workers"
        return Misfit("gpus", f"it asks for {size}")
    types = _types(spec, nodes)
    if not types:
        has = ", ".join(sorted({gpu.type for node in nodes for gpu in node.gpus})) or "no GPUs"
        return Misfit(
            "gpu_types" if spec.gpu_types else "gpus",
            f"no node has {_wanted(spec)}",
            f"the cluster has {shown(has)}",
        )
    labelled = [node for node in nodes if spec.node_labels <= node.labels]
    if not labelled:
        labels = ", ".join(sorted(f"{key}={value}" for key, value in spec.node_labels))
        return Misfit("node_labels", f"no node is labelled {shown(labels)}")
    parts = [_Part(node, kind) for node in labelled for kind in types]
    for field, holds, what in _demands(spec):
        if not any(map(holds, parts)):
            return Misfit(field, f"no single node has {what} for a worker")
    return _too_many(spec, labelled, types=types)


def _types(spec: JobSpec, nodes: Iterable[Node]) -> tuple[str, ...]:
    """GPU types that the job may run on; a job without GPUs runs on any node, whatever its type."""
    if not spec.uses_gpus and not spec.gpu_types:
        return ("",)
    present = {gpu.type for node in nodes for gpu in node.gpus}
    return tuple(sorted(present & set(spec.gpu_types) if spec.gpu_types else present))


def _wanted(spec: JobSpec) -> str:
    return f"a GPU of type {shown(' or '.join(spec.gpu_types))}" if spec.gpu_types else "a GPU"


def _demands(spec: JobSpec) -> list[tuple[str, Callable[[_Part], bool], str]]:
    """What one worker needs of its node: field, test, words."""
    demands: list[tuple[str, Callable[[_Part], bool], str]] = []
    if spec.gpus > 1:
        many = f"{spec.gpus} GPUs"
        demands.append(("gpus_per_worker", lambda part: len(part.cards) >= spec.gpus, many))
    if spec.share is not None:
        share = spec.share
        amount = f"a GPU with {share.memory_bytes / GIB:g} GiB"
        demands.append(("gpus", lambda part: part.n_shares(share) >= 1, amount))
    demands.append(("cpus", lambda part: part.node.cpus >= spec.cpus, f"{spec.cpus:g} CPUs"))
    memory = f"{spec.memory_bytes / GIB:g} GiB of memory"
    demands.append(("memory", lambda part: part.node.memory_bytes >= spec.memory_bytes, memory))
    return demands


def _too_many(spec: JobSpec, nodes: Sequence[Node], *, types: Sequence[str]) -> Misfit | None:
    """A job never spans types, so the best type counts. Only its minimum has to fit: where it
    requests more than there is, policies of fixed sizes give it what there is."""
    room = max(sum(_workers_on(spec, _Part(node, kind)) for node in nodes) for kind in types)
    if spec.min_workers <= room:
        return None
    per_worker = spec.gpus if spec.gpus else 1
    unit = "GPUs" if spec.gpus else "workers"
    return Misfit(
        "gpus",
        f"it needs {spec.min_workers * per_worker} {unit} and at most "
        f"{math.floor(room) * per_worker} fit",
        "give a larger cluster or a smaller job",
    )


def _workers_on(spec: JobSpec, part: _Part) -> float:
    node = part.node
    limits = [node.max_workers]
    if spec.gpus:
        limits.append(len(part.cards) // spec.gpus)
    if spec.share is not None:
        limits.append(part.n_shares(spec.share))
    if spec.cpus:
        limits.append((node.cpus + ROUNDING) // spec.cpus if node.cpus < math.inf else math.inf)
    if spec.memory_bytes:
        memory = node.memory_bytes
        limits.append(memory // spec.memory_bytes if memory < math.inf else math.inf)
    return min(limits)
