"""Finds the jobs of a workload that could never run on a cluster, before anything is simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rota.core.model import GIB, JobSpec, Node
from rota.errors import InputError, Where
from rota.simulator.workload import Workload

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a job never fits: the field that is to blame, and the sentence."""

    field: str
    message: str
    hint: str = ""


def check_fits(workload: Workload, nodes: Sequence[Node]) -> None:
    """Raises for the first job that the whole cluster, empty, could not run."""
    known: dict[tuple[object, ...], Misfit | None] = {}
    for job in workload.jobs:
        key = _needs(job.spec)
        if key not in known:
            known[key] = misfit(job.spec, nodes)
        found = known[key]
        if found is not None:
            field = workload.gpus_field if found.field == "gpus" else found.field
            raise InputError(
                Where(workload.name, job.row, field),
                f"job '{job.spec.name}' can never run: {found.message}",
                found.hint,
            )


def misfit(spec: JobSpec, nodes: Sequence[Node]) -> Misfit | None:
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
            f"the cluster has {has}",
        )
    labelled = [node for node in nodes if spec.node_labels <= node.labels]
    if not labelled:
        labels = ", ".join(sorted(f"{key}={value}" for key, value in spec.node_labels))
        return Misfit("node_labels", f"no node is labelled {labels}")
    for field, holds, what in _demands(spec):
        if not any(holds(node, kind) for node in labelled for kind in types):
            return Misfit(field, f"no single node has {what} for a worker")
    return _too_many(spec, labelled, types)


def _needs(spec: JobSpec) -> tuple[object, ...]:
    return (
        (spec.min_workers, spec.requested_workers, spec.max_workers, spec.gpus, spec.share),
        (spec.gpu_types, spec.node_labels, spec.cpus, spec.memory_bytes),
    )


def _types(spec: JobSpec, nodes: Iterable[Node]) -> tuple[str, ...]:
    """GPU types that the job may run on; a job without GPUs runs on any node, whatever its type."""
    if not spec.uses_gpus and not spec.gpu_types:
        return ("",)
    present = {gpu.type for node in nodes for gpu in node.gpus}
    return tuple(sorted(present & set(spec.gpu_types) if spec.gpu_types else present))


def _wanted(spec: JobSpec) -> str:
    return f"a GPU of type {' or '.join(spec.gpu_types)}" if spec.gpu_types else "a GPU"


def _demands(spec: JobSpec) -> list[tuple[str, Callable[[Node, str], bool], str]]:
    """What one worker needs of its node: field, test, words."""
    demands: list[tuple[str, Callable[[Node, str], bool], str]] = []
    if spec.gpus > 1:
        many = f"{spec.gpus} GPUs"
        demands.append(("gpus_per_worker", lambda n, k: _count(n, k) >= spec.gpus, many))
    if spec.share is not None:
        amount = f"a GPU with {spec.share.memory_bytes / GIB:g} GiB"
        demands.append(("gpus", lambda n, k: _sharers(spec, n, k) >= 1, amount))
    demands.append(("cpus", lambda n, _: n.cpus >= spec.cpus, f"{spec.cpus:g} CPUs"))
    memory = f"{spec.memory_bytes / GIB:g} GiB of memory"
    demands.append(("memory", lambda n, _: n.memory_bytes >= spec.memory_bytes, memory))
    return demands


def _too_many(spec: JobSpec, nodes: Sequence[Node], types: Sequence[str]) -> Misfit | None:
    """A job never spans types, so the best type counts. What it requests must fit as well as its
    minimum, since policies of fixed sizes would wait for it for ever."""
    room = max(sum(_workers_on(spec, node, kind) for node in nodes) for kind in types)
    if spec.requested_workers <= room:
        return None
    per_worker = spec.gpus if spec.gpus else 1
    unit = "GPUs" if spec.gpus else "workers"
    return Misfit(
        "gpus",
        f"it asks for {spec.requested_workers * per_worker} {unit} and at most "
        f"{math.floor(room) * per_worker} fit",
        "give a larger cluster or a smaller job",
    )


def _workers_on(spec: JobSpec, node: Node, kind: str) -> float:
    limits = [node.max_workers]
    if spec.gpus:
        limits.append(_count(node, kind) // spec.gpus)
    if spec.share is not None:
        limits.append(_sharers(spec, node, kind))
    if spec.cpus:
        limits.append((node.cpus + ROUNDING) // spec.cpus if node.cpus < math.inf else math.inf)
    if spec.memory_bytes:
        memory = node.memory_bytes
        limits.append(memory // spec.memory_bytes if memory < math.inf else math.inf)
    return min(limits)


def _count(node: Node, kind: str) -> int:
    return sum(gpu.type == kind for gpu in node.gpus)


def _sharers(spec: JobSpec, node: Node, kind: str) -> int:
    """How many shares of this size the node's cards hold."""
    if spec.share is None:
        return 0
    cards = [gpu.memory_bytes for gpu in node.gpus if gpu.type == kind]
    return sum(card // spec.share.bytes_on(card) for card in cards)
