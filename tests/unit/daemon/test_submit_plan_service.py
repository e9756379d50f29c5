"""Dry runs of a submit: one at a time for each user, off the event loop, within the limits."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rota.core.model.job import Estimate, Job
from rota.core.scheduling.policy_api import Budget, Policy, Targets
from rota.daemon.access.authorization import Caller
from rota.daemon.jobs.admission import Admitted
from rota.daemon.jobs.forecaster import MAX_JOB_ROUNDS, Forecaster
from rota.daemon.submit_plan_service import MAX_PLANNED, SubmitPlanService, TooManyPlansError
from rota.engines.virtual.forecast import forecast_engine
from rota.tasks import Tasks
from rota.wire.jobs import JobRequest
from rota.wire.submit_plan import SubmitPlan
from tests.support.builders import Lab, cluster, job
from tests.support.timeouts import PATIENCE_S

ADA, BOB = Caller("ada", uid=1000), Caller("bob", uid=1001)
REQUEST = JobRequest(command=["p"], workdir="/")
HOUR = Estimate(3600.0, 1)


class BlockedPolicy:
    """Waits in its thread until the test opens it."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.opened = threading.Event()

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        assert threading.current_thread() is not threading.main_thread()
        assert self.opened.wait(PATIENCE_S)
        return self._policy.size(jobs, budget, now=now)


class Bench:
    """The service on the kernel of a lab. Each request is the job that `admitted` has."""

    def __init__(self, lab: Lab, *admitted: Admitted) -> None:
        self.lab = lab
        self.scheduling_loop = SimpleNamespace(count=1, stall="")
        controller: Any = SimpleNamespace(
            speeds=lab.kernel.speeds,
            jobs=lab.kernel.jobs,
            job=lab.kernel.job,
            nodes=lab.kernel.nodes,
            outcomes=lab.kernel.outcomes,
            rules=lab.kernel.rules,
            peek=lambda: lab.kernel.peek(lab.now),
            require_available=lambda: None,
            trouble="",
            policy=lab.policy,
            scheduling_loop=self.scheduling_loop,
            tasks=Tasks(),
        )

        async def check(*_: object) -> list[Admitted]:
            return list(admitted)

        submissions: Any = SimpleNamespace(check=check)
        self.forecaster = Forecaster(controller, lambda: lab.now, engine_of=forecast_engine)
        self.service = SubmitPlanService(
            controller, submissions, forecaster=self.forecaster, clock=lambda: lab.now
        )

    def plan(self, caller: Caller = ADA) -> Coroutine[Any, Any, SubmitPlan]:
        return self.service.plan(caller, [REQUEST])


def planned(lab: Lab, *admitted: Admitted) -> SubmitPlan:
    async def scenario() -> SubmitPlan:
        return await Bench(lab, *admitted).plan()

    return asyncio.run(scenario())


def test_expected_times_of_a_job_that_waits() -> None:
    lab = Lab(cluster("1x1"))
    lab.run(job("a", estimate=HOUR))
    lab.submit(job("b", estimate=HOUR, user="bob"))
    [found] = planned(lab, Admitted(job("new", estimate=HOUR), REQUEST)).plans
    assert (found.starts_now, found.start_s, found.finish_s) == (False, 7200.0, 10800.0)
    assert [(each.id, each.user) for each in found.ahead] == [("b", "bob")]
    assert lab.kernel.jobs.keys() == {"a", "b"}


def test_job_that_starts_needs_no_forecast() -> None:
    lab = Lab(cluster("1x1"))
    [found] = planned(lab, Admitted(job("new", estimate=HOUR), REQUEST)).plans
    assert (found.starts_now, found.start_s, found.finish_s) == (True, 0.0, 3600.0)


def test_array_is_planned_by_its_first_job() -> None:
    members = [Admitted(job("new"), REQUEST, index, is_first=not index) for index in range(3)]
    found = planned(Lab(cluster("1x1")), *members, Admitted(job("other"), REQUEST))
    assert (found.count, [each.count for each in found.plans]) == (4, [3, 1])
    assert [each.starts_now for each in found.plans] == [True, False]


def test_number_of_plans_is_limited() -> None:
    many = [Admitted(job(f"j{index}"), REQUEST) for index in range(MAX_PLANNED + 5)]
    found = planned(Lab(cluster("1x1")), *many)
    assert (found.count, len(found.plans)) == (MAX_PLANNED + 5, MAX_PLANNED)


def test_too_many_jobs_for_a_forecast_leave_the_times_unknown() -> None:
    lab = Lab(cluster("1x1"))
    lab.submit(*(job(f"j{index}") for index in range(MAX_JOB_ROUNDS // 20 + 1)))
    [found] = planned(lab, Admitted(job("new", estimate=HOUR), REQUEST)).plans
    assert (found.starts_now, found.start_s, found.finish_s) == (False, None, None)
    assert (found.ahead_count, len(found.ahead)) == (MAX_JOB_ROUNDS // 20, 5)


def test_each_user_has_one_dry_run_at_a_time() -> None:
    async def scenario() -> None:
        lab = Lab(cluster("1x1"))
        policy = lab.policy = BlockedPolicy(lab.policy)
        bench = Bench(lab, Admitted(job("new"), REQUEST))
        first = asyncio.ensure_future(bench.plan())
        other = asyncio.ensure_future(bench.plan(BOB))
        await asyncio.sleep(0)
        with pytest.raises(TooManyPlansError, match="another dry run of ada has not ended"):
            await bench.plan()
        policy.opened.set()
        assert (await first).plans[0].starts_now
        assert (await other).plans[0].starts_now
        assert (await bench.plan()).plans[0].starts_now

    asyncio.run(scenario())


def test_abandoned_dry_run_still_counts_until_its_thread_ends() -> None:
    async def scenario() -> None:
        lab = Lab(cluster("1x1"))
        policy = lab.policy = BlockedPolicy(lab.policy)
        bench = Bench(lab, Admitted(job("new"), REQUEST))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(bench.plan(), 0.01)
        with pytest.raises(TooManyPlansError):
            await bench.plan()
        policy.opened.set()

    asyncio.run(scenario())


def test_stalled_scheduler_is_the_reason() -> None:
    async def scenario() -> None:
        bench = Bench(Lab(cluster("1x1")), Admitted(job("new"), REQUEST))
        bench.scheduling_loop.stall = "policy X has not returned"
        [found] = (await bench.plan()).plans
        assert (found.starts_now, found.reason) == (False, "policy X has not returned")
        assert found.start_s is None

    asyncio.run(scenario())
