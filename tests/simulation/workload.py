"""Random clusters, jobs and user requests, all from one seed."""

from dataclasses import dataclass
from random import Random

from rota.core.lifecycle.reducer import new_job
from rota.core.model.events import (
    Event,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobSubmitted,
    NodeDrained,
    NodeSeen,
)
from rota.core.model.job import Estimate, GpuShare, JobId, JobSpec, Mode
from rota.core.model.node import Gpu, Node, NodeId
from rota.core.model.units import GIB
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.slots import n_fitting
from rota.core.placement.wish import demand_of

LATE_S = 20.0
"""The longest delay of a report."""
QUIET_AFTER_S = 3_000.0
"""After this time no new event is injected, and every job must end."""


@dataclass(frozen=True)
class Scenario:
    nodes: dict[NodeId, Node]
    specs: dict[JobId, JobSpec]
    requests: list[tuple[float, Event]]
    """User requests by time."""


def scenario(random: Random) -> Scenario:
    nodes = _nodes(random)
    specs: dict[JobId, JobSpec] = {}
    requests: list[tuple[float, Event]] = []
    while len(specs) < random.choice([20, 25, 30]):
        job_id = JobId(f"job-{len(specs):02}")
        spec = _spec(random, job_id, known=list(specs))
        if _fits(spec, nodes):
            specs[job_id] = spec
            at_s = random.uniform(0, 1_500)
            is_held = random.random() < 0.1
            requests.append((at_s, JobSubmitted(job_id, spec, is_held=is_held)))
            requests += _second_thoughts(random, job_id, at_s)
    requests += [
        (random.uniform(0, QUIET_AFTER_S), NodeDrained(random.choice(list(nodes))))
        for _ in range(random.randint(0, 2))
    ]
    requests += [(QUIET_AFTER_S, JobReleased(job_id)) for job_id in specs]
    requests += [(QUIET_AFTER_S + LATE_S, NodeSeen(node)) for node in nodes.values()]
    requests.sort(key=lambda request: request[0])
    return Scenario(nodes, specs, requests)


def _nodes(random: Random) -> dict[NodeId, Node]:
    has_two_types = random.random() < 0.3
    has_limits = random.random() < 0.5
    nodes: dict[NodeId, Node] = {}
    for number in range(random.randint(3, 5)):
        gpu_type = "V100" if has_two_types and number % 2 else "A100"
        gpus = tuple(Gpu(index, gpu_type) for index in range(random.choice([1, 2, 4, 4])))
        limits = {"cpus": 8.0, "memory_bytes": 64.0 * GIB, "max_workers": 6} if has_limits else {}
        nodes[NodeId(f"n{number}")] = Node(NodeId(f"n{number}"), gpus, **limits)
    return nodes


def _spec(random: Random, name: str, known: list[JobId]) -> JobSpec:
    kind = random.choice(["gpu", "gpu", "gpu", "gpu", "wide", "share", "cpu"])
    least = random.randint(1, 3)
    most = least + random.choice([0, 0, 1, 3])
    epochs = random.choice([5.0, 12.0, 30.0])
    return JobSpec(
        name=name,
        priority=random.choice([0, 0, 0, 1, 2]),
        mode=random.choice([Mode.FIXED, Mode.RESTART, Mode.LIVE, Mode.TORCHRUN]),
        min_workers=least,
        max_workers=most,
        requested_workers=random.randint(least, most),
        gpus={"gpu": 1, "wide": 2, "share": 0, "cpu": 0}[kind],
        share=GpuShare(fraction=random.choice([0.25, 0.5])) if kind == "share" else None,
        gpu_types=random.choice([(), (), ("A100",), ("V100", "A100")]),
        cpus=random.choice([0.0, 1.0, 2.5]),
        memory_bytes=random.choice([0, 8 * GIB]),
        epochs=epochs,
        estimate=random.choice([None, Estimate(seconds=random.uniform(10, 900))]),
        category=random.choice(["", "resnet", "bert"]),
        retries=random.choice([0, 2, 5]),
        retry_on=random.choice([frozenset(), frozenset({77})]),
        time_limit_s=random.choice([float("inf")] * 8 + [random.uniform(50, 500)]),
        min_runtime_s=random.choice([None, 0.0]),
        after=tuple(random.sample(known, 1)) if known and random.random() < 0.15 else (),
    )


def _fits(spec: JobSpec, nodes: dict[NodeId, Node]) -> bool:
    """Whether the empty cluster could hold the job."""
    capacity = ClusterCapacity(nodes.values())
    job = new_job(JobSubmitted(JobId(spec.name), spec), 0.0, known=None)
    types = (spec.gpu_types or tuple(capacity.gpus)) if spec.uses_gpus else ("",)
    demands = [demand_of(job, gpu_type) for gpu_type in types]
    return any(n_fitting(capacity, demand) >= spec.min_workers for demand in demands)


def _second_thoughts(random: Random, job_id: JobId, at_s: float) -> list[tuple[float, Event]]:
    """Later requests of the submitter: usually none."""
    asked: list[tuple[float, Event]] = []
    if random.random() < 0.1:
        asked.append((at_s + random.uniform(0, 600), JobCancelled(job_id)))
    if random.random() < 0.2:
        held_s = at_s + random.uniform(0, 600)
        asked.append((held_s, JobHeld(job_id)))
        asked.append((held_s + random.choice([0.0, 1.0, 300.0]), JobReleased(job_id)))
    return asked
