"""What a pod may use up on its node, as the cluster counts it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.engines.kubernetes.objects import Object, part, parts
from rota.engines.kubernetes.quantities import amount


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod may use, and with it nobody else."""

    gpus: int = 0
    cpus: float = 0.0
    memory_bytes: float = 0.0


def total(usages: Sequence[Usage]) -> Usage:
    return Usage(
        sum(each.gpus for each in usages),
        sum(each.cpus for each in usages),
        sum(each.memory_bytes for each in usages),
    )


def usage_of(pod: Object, gpu_resource: str) -> Usage:
    """As the cluster's scheduler counts it: what runs together is added up, and what runs before
    that, one by one, needs room as well."""
    spec = part(pod, "spec")
    first = parts(spec, "initContainers")
    beside = [each for each in first if each.get("restartPolicy") == "Always"]
    before = [each for each in first if each.get("restartPolicy") != "Always"]
    together = [*parts(spec, "containers"), *beside]

    def most(name: str) -> float:
        running = sum(_asked(each, name) for each in together)
        overhead = amount(part(spec, "overhead").get(name))
        return max([running, *(_asked(each, name) for each in before)]) + overhead

    return Usage(int(most(gpu_resource)), most("cpu"), most("memory"))


def _asked(container: Object, name: str) -> float:
    asked = part(container, "resources", "requests").get(name)
    limit = part(container, "resources", "limits").get(name)
    return amount(limit if asked is None else asked)
