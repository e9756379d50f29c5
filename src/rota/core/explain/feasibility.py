"""Checks whether the empty nodes of a cluster could ever run a job, and says what is missing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest

from rota.core.explain.reasons import plural
from rota.core.model.job import GpuShare, JobSpec
from rota.core.model.node import Node
from rota.core.model.units import GIB
from rota.errors import shown

ROUNDING = 1e-9
MAX_CACHED = 1000


@dataclass(frozen=True, slots=True)
class Infeasibility:
    """Why a job can never run: the field of its request, and a message such as `requests 9 GPUs per
    worker, largest node has 8`."""

    field: str
    message: str
    hint: str = ""


class _NodePart:
    """A node, restricted to its GPUs of one type."""

    __slots__ = ("gpus", "node")

    def __init__(self, node: Node, kind: str) -> None:
        self.node = node
        self.gpus = [gpu.memory_bytes for gpu in node.gpus if gpu.type == kind]

    def n_shares(self, share: GpuShare, *, most_per_gpu: float) -> int:
        return sum(int(min(size // share.bytes_on(size), most_per_gpu)) for size in self.gpus)


class FeasibilityChecker:
    """Checks many jobs on the same nodes. Jobs with equal requests are checked once."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = nodes
        self._known: dict[tuple[object, ...], Infeasibility | None] = {}

    def of(self, spec: JobSpec) -> Infeasibility | None:
        """Why the nodes can never run a job with this spec; None if they can."""
        needs = _needs(spec)
        if needs not in self._known:
            if len(self._known) == MAX_CACHED:
                self._known.clear()
            self._known[needs] = _infeasibility(spec, self.nodes)
        return self._known[needs]


def checker_of(nodes: Iterable[Node]) -> FeasibilityChecker:
    """The checker of these nodes with all their resources."""
    return FeasibilityChecker([with_full_capacity(node) for node in nodes])


def with_full_capacity(node: Node) -> Node:
    """The node with all its resources: healthy, and free of other workloads."""
    best = node.whole
    if best is None:
        return node
    amounts = {
        "cpus": best.cpus,
        "memory_bytes": best.memory_bytes,
        "max_workers": best.max_workers,
    }
    return replace(node, gpus=best.gpus, whole=None, taints=(), **amounts)


def _needs(spec: JobSpec) -> tuple[object, ...]:
    return (
        (spec.min_workers, spec.requested_workers, spec.max_workers, spec.gpus, spec.share),
        (spec.gpu_types, spec.node_labels, spec.cpus, spec.memory_bytes),
        (spec.merges_units, spec.max_nodes),
    )


def _infeasibility(spec: JobSpec, nodes: Sequence[Node]) -> Infeasibility | None:
    """The most specific reason, so that the message names the field to change."""
    if not spec.min_workers <= spec.requested_workers <= spec.max_workers:
        bounds = f"{spec.min_workers}..{spec.max_workers}"
        message = f"requests {spec.requested_workers} workers, outside of its range {bounds}"
        return Infeasibility("gpus", message)
    types = _types(spec, nodes)
    if not types:
        has = ", ".join(sorted({gpu.type for node in nodes for gpu in node.gpus})) or "no GPUs"
        return Infeasibility(
            "gpu_types" if spec.gpu_types else "gpus",
            f"requests {_wanted(spec)}, no node has one",
            f"the cluster has {shown(has)}",
        )
    labelled = [node for node in nodes if spec.node_labels <= node.labels]
    if not labelled:
        labels = ", ".join(sorted(f"{key}={value}" for key, value in spec.node_labels))
        message = f"requests nodes with the label {shown(labels)}, no node has it"
        return Infeasibility("node_labels", message)
    parts = [_NodePart(node, kind) for node in labelled for kind in types]
    for demand in _demands(spec):
        largest = max(map(demand.available, parts))
        if largest < demand.amount:
            unit = " GiB" if demand.unit.startswith("GiB") else ""
            message = (
                f"requests {demand.amount:g} {demand.unit} per worker,"
                f" {demand.largest} has {largest:.4g}{unit}"
            )
            return Infeasibility(demand.field, message)
    return _too_many(spec, labelled, types=types)


def _types(spec: JobSpec, nodes: Iterable[Node]) -> tuple[str, ...]:
    """The GPU types that the job may use. A job without GPUs may use any node."""
    if not spec.uses_gpus and not spec.gpu_types:
        return ("",)
    present = {gpu.type for node in nodes for gpu in node.gpus}
    return tuple(sorted(present & set(spec.gpu_types) if spec.gpu_types else present))


def _wanted(spec: JobSpec) -> str:
    return f"a GPU of type {shown(' or '.join(spec.gpu_types))}" if spec.gpu_types else "a GPU"


@dataclass(frozen=True, slots=True)
class _Demand:
    """An amount of one resource that a worker needs on its node."""

    field: str
    amount: float
    unit: str
    available: Callable[[_NodePart], float]
    largest: str = "largest node"


def _demands(spec: JobSpec) -> list[_Demand]:
    demands: list[_Demand] = []
    if spec.gpus > 1:
        demands.append(_Demand("gpus_per_worker", spec.gpus, "GPUs", lambda part: len(part.gpus)))
    if spec.share is not None:
        gib = spec.share.memory_bytes / GIB
        demands.append(_Demand("gpus", gib, "GiB of GPU memory", _largest_gpu_gib, "largest GPU"))
    demands.append(_Demand("cpus", spec.cpus, "CPUs", lambda part: part.node.cpus))
    gib = spec.memory_bytes / GIB
    demands.append(
        _Demand("memory", gib, "GiB of memory", lambda part: part.node.memory_bytes / GIB)
    )
    return demands


def _largest_gpu_gib(part: _NodePart) -> float:
    return max(part.gpus, default=0) / GIB


def _too_many(
    spec: JobSpec, nodes: Sequence[Node], *, types: Sequence[str]
) -> Infeasibility | None:
    """Whether the job's minimum fits. A job never spans GPU types, so the best type counts. Only
    the minimum must fit: policies with fixed sizes reduce a larger request to what fits."""
    by_type = [[_units_on(spec, _NodePart(node, kind)) for node in nodes] for kind in types]
    most = max(map(sum, by_type))
    at_once = max(sum(nlargest(spec.max_nodes or len(nodes), units)) for units in by_type)
    if spec.min_workers <= at_once:
        return None
    wanted = plural(spec.gpus_of(spec.min_workers), "GPU" if spec.uses_gpus else "worker")
    fit = f"at most {spec.gpus_of(math.floor(at_once))} fit"
    hint = "use a larger cluster or a smaller job"
    if spec.max_nodes:
        fit += f" on {plural(spec.max_nodes, 'node')}"
    if spec.min_workers <= most:
        hint = "allow more nodes with --nodes, if the program can use them"
    return Infeasibility("gpus", f"requests {wanted}, {fit}", hint)


def _units_on(spec: JobSpec, part: _NodePart) -> float:
    n_workers = _workers_beside_gpus(spec, part.node)
    limits = [math.inf if spec.merges_units and n_workers >= 1 else n_workers]
    if spec.gpus:
        limits.append(len(part.gpus) // spec.gpus)
    if spec.share is not None:
        most = 1 if spec.merges_units else math.inf
        limits.append(part.n_shares(spec.share, most_per_gpu=most))
    return min(limits)


def _workers_beside_gpus(spec: JobSpec, node: Node) -> float:
    """How many workers fit, apart from their GPUs."""
    limits = [node.max_workers]
    if spec.cpus:
        limits.append((node.cpus + ROUNDING) // spec.cpus if node.cpus < math.inf else math.inf)
    if spec.memory_bytes:
        memory = node.memory_bytes
        limits.append(memory // spec.memory_bytes if memory < math.inf else math.inf)
    return min(limits)
