"""The resource requests of a pod, counted as the cluster's scheduler counts them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rota.kube.quantities import parse_quantity
from rota.kube.resources import Object, part, parts


@dataclass(frozen=True, slots=True)
class PodRequests:
    """What a pod reserves on its node."""

    gpus: int = 0
    cpus: float = 0.0
    memory_bytes: float = 0.0


def total_requests(usages: Sequence[PodRequests]) -> PodRequests:
    return PodRequests(
        sum(each.gpus for each in usages),
        sum(each.cpus for each in usages),
        sum(each.memory_bytes for each in usages),
    )


def requests_of(pod: Object, gpu_resource: str) -> PodRequests:
    """Sum of the containers and sidecars, or the largest init container if that is more; plus
    the overhead."""
    spec = part(pod, "spec")
    init = parts(spec, "initContainers")
    sidecars = [each for each in init if each.get("restartPolicy") == "Always"]
    sequential = [each for each in init if each.get("restartPolicy") != "Always"]
    concurrent = [*parts(spec, "containers"), *sidecars]

    def total(name: str) -> float:
        running = sum(_request(each, name) for each in concurrent)
        overhead = parse_quantity(part(spec, "overhead").get(name))
        return max([running, *(_request(each, name) for each in sequential)]) + overhead

    return PodRequests(int(total(gpu_resource)), total("cpu"), total("memory"))


def _request(container: Object, name: str) -> float:
    request = part(container, "resources", "requests").get(name)
    limit = part(container, "resources", "limits").get(name)
    return parse_quantity(limit if request is None else request)
