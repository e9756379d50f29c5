"""The queues of Tiresias: when a job moves down and up."""

import math

import pytest

from rota.core.model.job import Held, Job, Queued, ServiceTime
from rota.core.scheduling.policy_api import Requeues
from rota.policies.elastic_tiresias import ElasticTiresias
from rota.policies.tiresias import Tiresias
from tests.unit.policies.policy_cases import job, running

STARTS = (0.0, 0.1, 1_234.567, 86_400 / 7, 1.7e9 + 0.123)


def runner(start: float, *, n_gpus: int, queue: int = 0, gpu_s: float = 0.0) -> Job:
    return job(
        "a",
        queue=queue,
        phase=running(n_gpus),
        service=ServiceTime(as_of_s=start, last_gpu_s=gpu_s),
        first_started_s=start,
    )


def waiter(start: float, *, ran_s: float, queue: int = 1, first_started_s: float = 0.0) -> Job:
    service = ServiceTime(as_of_s=start, last_running_s=ran_s)
    return job(
        "a", queue=queue, phase=Queued(start), service=service, first_started_s=first_started_s
    )


@pytest.mark.parametrize("policy", [Tiresias(), ElasticTiresias()])
def test_both_tiresias_policies_requeue(policy: Tiresias | ElasticTiresias) -> None:
    assert isinstance(policy, Requeues)
    assert policy.requeues_at(runner(0.0, n_gpus=2), 0.0) == 1800.0
    assert policy.queue_at(runner(0.0, n_gpus=2), 1799.0) == 0
    assert policy.queue_at(runner(0.0, n_gpus=2), 1800.0) == 1


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("n_gpus", [1, 3, 7, 512])
def test_a_clock_that_jumps_to_the_demotion_finds_it_due(start: float, n_gpus: int) -> None:
    policy = Tiresias(threshold_gpu_s=1_000.1)
    seen = runner(start, n_gpus=n_gpus, gpu_s=1 / 3)
    at = policy.requeues_at(seen, start)
    assert start < at
    assert policy.queue_at(seen, at) == 1
    assert policy.queue_at(seen, at - 0.01) == 0
    assert policy.requeues_at(seen, at) == at


@pytest.mark.parametrize("start", STARTS)
def test_a_clock_that_jumps_to_the_promotion_finds_it_due(start: float) -> None:
    policy = Tiresias(knob=1 / 3)
    seen = waiter(start, ran_s=0.7)
    at = policy.requeues_at(seen, start)
    assert at == pytest.approx(start + 0.7 / 3)
    assert policy.queue_at(seen, at) == 0
    assert policy.queue_at(seen, at - 0.01) == 1
    assert policy.requeues_at(seen, at) == at


@pytest.mark.parametrize(
    "seen",
    [
        waiter(0.0, ran_s=1.0, queue=0),
        waiter(0.0, ran_s=0.0, first_started_s=math.inf),
        runner(0.0, n_gpus=4, queue=1, gpu_s=1e9),
        job("a", queue=1, phase=Held(0.0)),
        job("cpu", gpus=0, phase=running(0)),
    ],
    ids=["waits in the first queue", "never ran", "runs in the last queue", "held", "no GPUs"],
)
def test_jobs_that_keep_their_queue(seen: Job) -> None:
    assert Tiresias().requeues_at(seen, 1e6) == math.inf
    assert Tiresias().queue_at(seen, 1e6) == seen.queue


def test_an_unknown_queue_is_corrected_at_once() -> None:
    assert Tiresias().requeues_at(runner(0.0, n_gpus=1, queue=5), 3.0) == 3.0


def test_only_the_newest_run_counts() -> None:
    service = ServiceTime(as_of_s=0.0, gpu_s=1e6, last_gpu_s=0.0)
    seen = job("a", phase=running(1), service=service, first_started_s=0.0)
    assert Tiresias().requeues_at(seen, 0.0) == 3600.0
