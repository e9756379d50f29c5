"""The limit of one person's jobs without GPUs, and the count of their queued jobs."""

from dataclasses import replace

import pytest

from rota.core.explain.explain import WaitExplainer
from rota.core.explain.reasons import WaitsForUserLimit
from rota.core.lifecycle.states import JobState
from rota.core.model.job import JobId
from rota.core.scheduling.round import decide
from rota.policies.registry import parse
from tests.support.builders import QUICK, Lab, cluster, job


def lab_with_limit(limit: int | None) -> Lab:
    return Lab(cluster("1x2"), rules=replace(QUICK, max_cpu_jobs=limit))


def submit_all(lab: Lab) -> None:
    for name in ("a", "b", "c"):
        lab.submit(job(name, user="ada", gpus_per_worker=0))
    lab.submit(job("d", user="bob", gpus_per_worker=0))
    lab.submit(job("e", user="ada"))
    lab.round()


@pytest.mark.parametrize("limit", [0, None])
def test_a_few_jobs_without_gpus_all_start(limit: int | None):
    lab = lab_with_limit(limit)
    submit_all(lab)
    assert {lab.state(name) for name in "abcde"} == {JobState.STARTING}


def test_a_person_at_the_limit_waits_and_others_start():
    lab = lab_with_limit(2)
    submit_all(lab)
    assert [lab.state(name) for name in "abcde"] == [
        JobState.STARTING,
        JobState.STARTING,
        JobState.QUEUED,
        JobState.STARTING,
        JobState.STARTING,
    ]
    view = lab.kernel.peek(lab.now)
    found = WaitExplainer(view, decide(view, parse("fifo"))).wait_reason(view_job(lab, "c"))
    assert found == WaitsForUserLimit()
    lab.started("a")
    lab.exited("a")
    lab.round()
    assert lab.state("c") is JobState.STARTING


def view_job(lab: Lab, name: str):
    found = lab.kernel.job(JobId(name))
    assert found is not None
    return found


def test_queued_and_held_jobs_are_counted_for_each_user():
    lab = lab_with_limit(1)
    submit_all(lab)
    lab.hold("c")
    assert (lab.kernel.n_queued("ada"), lab.kernel.n_queued("bob")) == (2, 0)
    lab.release("c")
    lab.cancel("c")
    assert lab.kernel.n_queued("ada") == 1
