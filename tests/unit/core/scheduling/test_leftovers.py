"""Rules for policies that declare `shares_leftovers`, with a small policy that does."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from rota.core.estimation.speed_model import SpeedModel
from rota.core.model.job import Job, Queued, ServiceTime
from rota.core.scheduling.policy_api import Budget, Targets
from rota.core.scheduling.quota import divide
from rota.core.scheduling.sizing import size
from rota.core.scheduling.view import Rules
from rota.policies.registry import POLICIES, parse
from tests.unit.core.view_builders import job, nodes, runs, view


@dataclass(frozen=True)
class FirstComeMost:
    """Each job in order gets as much as is left, from its minimum up."""

    shares_leftovers: ClassVar[bool] = True

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        del now
        targets: Targets = {}
        for each in jobs:
            for workers in range(budget.limit(each), each.spec.min_workers - 1, -1):
                if budget.grant(each, workers):
                    targets[each.id] = workers
                    break
        return targets


@dataclass(frozen=True)
class MinimumOnly:
    """Each job in order gets its minimum, if enough is left."""

    shares_leftovers: ClassVar[bool] = True

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        del now
        return {
            each.id: each.spec.min_workers
            for each in jobs
            if budget.limit(each) >= each.spec.min_workers
            and budget.grant(each, each.spec.min_workers)
        }


@dataclass(frozen=True)
class MinimumAndNoMore(MinimumOnly):
    shares_leftovers: ClassVar[bool] = False


@dataclass(frozen=True)
class LastComeFirst(MinimumOnly):
    """Starves the first job in the queue while another job is behind it."""

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        return super().size(jobs[::-1], budget, now=now)


Policies = FirstComeMost | MinimumOnly | MinimumAndNoMore


def sized(cluster: str, policy: Policies, *jobs: Job, limits: dict[Any, int] | None = None) -> Any:
    before = view(nodes(cluster), *jobs, rules=Rules(starvation_after_s=3600.0))
    return size(divide(before), policy, view=before, limits=limits or {})


def lasting(name: str, sizes: str, seconds: float, **changes: Any) -> Job:
    """A job that waits and would take so long on one worker."""
    speed = SpeedModel(one_s=seconds, error=0.0, assumed=tuple(float(n) for n in range(17)))
    return job(name, sizes, speed=speed, **changes)


def started(waiting: Job, where: str) -> Job:
    running = runs(waiting.spec.name, where)
    return replace(waiting, phase=running.phase)


def starving(name: str, sizes: str, seconds: float = 100.0) -> Job:
    waited = ServiceTime(as_of_s=0.0, last_waiting_s=3600.0)
    return lasting(name, sizes, seconds, phase=Queued(-3600.0), service=waited)


def test_no_shipped_policy_shares_leftovers() -> None:
    assert not any(getattr(parse(name), "shares_leftovers", False) for name in POLICIES)


def test_the_targets_of_other_policies_are_final() -> None:
    assert sized("8", MinimumAndNoMore(), job("a", "1..4")) == {"a": 1}


# -- what nobody used -----------------------------------------------------------------------------


def test_unused_gpus_go_to_jobs_that_can_grow() -> None:
    a, b = job("a", "1..8"), job("b", "1..2")
    assert sized("8", MinimumOnly(), a, b) == {"a": 6, "b": 2}


def test_unused_gpus_are_offered_in_turns() -> None:
    jobs = [job(name, "1..8") for name in "abc"]
    assert sized("8", MinimumOnly(), *jobs) == {"a": 3, "b": 3, "c": 2}


def test_no_job_grows_beyond_its_limit() -> None:
    a, b = job("a", "1..8"), job("b", "1..8")
    assert sized("8", MinimumOnly(), a, b, limits={a.id: 2}) == {"a": 2, "b": 6}


def test_unused_gpus_are_offered_after_all_priorities_are_sized() -> None:
    high, low = job("high", "1..8", priority=1), job("low", "4")
    assert sized("8", MinimumOnly(), low, high) == {"high": 4, "low": 4}


# -- room for newcomers ---------------------------------------------------------------------------


def test_an_elastic_job_shrinks_before_a_new_job_waits() -> None:
    a, new = started(job("a", "1..4"), "n1/0 n1/1 n1/2 n1/3"), job("new", "2")
    assert sized("4", FirstComeMost(), a, new) == {"a": 2, "new": 2}


def test_the_largest_surplus_shrinks_first() -> None:
    a, b, new = job("a", "1..3"), job("b", "2..5"), job("new", "2")
    assert sized("8", FirstComeMost(), a, b, new) == {"a": 3, "b": 3, "new": 2}


def test_no_job_shrinks_below_its_minimum_or_without_use() -> None:
    a, big = job("a", "3..4"), job("big", "2")
    assert sized("4", FirstComeMost(), a, big) == {"a": 4}


def test_newcomers_are_served_in_their_order() -> None:
    a = job("a", "1..4")
    newcomers = [job(name, "1") for name in "bcde"]
    assert sized("4", FirstComeMost(), a, *newcomers) == {"a": 1, "b": 1, "c": 1, "d": 1}


# -- reservation and backfill ---------------------------------------------------------------------


def test_only_jobs_that_end_in_time_pass_a_starving_job() -> None:
    """big gets its turn when busy ends, in 500 s."""
    busy = started(lasting("busy", "2", 1000.0), "n1/0 n1/1")
    big = starving("big", "4")
    quick, slow = lasting("quick", "1", 400.0), lasting("slow", "1", 600.0)
    assert sized("4", MinimumOnly(), busy, big, quick, slow) == {"busy": 2, "quick": 1}


def test_any_job_may_pass_before_starvation() -> None:
    busy = started(lasting("busy", "2", 1000.0), "n1/0 n1/1")
    big, slow = lasting("big", "4", 100.0), lasting("slow", "1", 600.0)
    assert sized("4", MinimumOnly(), busy, big, slow) == {"busy": 2, "slow": 1}


def test_spare_gpus_beside_a_reservation_may_be_used() -> None:
    busy = started(lasting("busy", "2", 1000.0), "n1/0 n1/1")
    big = starving("big", "3")
    slow, more = lasting("slow", "1", 1e6), lasting("more", "1", 1e6)
    assert sized("4", MinimumOnly(), busy, big, slow, more) == {"busy": 2, "slow": 1}


def test_a_starving_job_starts_if_holding_others_back_is_enough() -> None:
    big, small, late = starving("big", "3"), lasting("small", "1", 1.0), lasting("late", "2", 1.0)
    assert sized("4", LastComeFirst(), big, small, late) == {"big": 3, "small": 1}
    in_time = replace(big, service=ServiceTime(as_of_s=0.0))
    assert sized("4", LastComeFirst(), in_time, small, late) == {"small": 1, "late": 2}


def test_a_running_job_is_not_stopped_for_a_reservation() -> None:
    busy = started(lasting("busy", "2", 1000.0), "n1/0 n1/1")
    big = starving("big", "4")
    other = started(lasting("other", "1", 1e6), "n1/2")
    assert sized("4", MinimumOnly(), busy, big, other) == {"busy": 2, "other": 1}


def test_a_job_ahead_of_a_reservation_does_not_use_it() -> None:
    busy = started(lasting("busy", "2", 1000.0), "n1/0 n1/1")
    first, big = lasting("first", "1", 1e6), starving("big", "4")
    assert sized("4", MinimumOnly(), busy, first, big) == {"busy": 2, "first": 1}


def test_no_job_grows_into_a_reservation() -> None:
    busy = started(lasting("busy", "2..4", 1000.0), "n1/0 n1/1")
    other = started(lasting("other", "1..2", 1e6), "n1/2")
    big = starving("big", "7")
    assert sized("8", MinimumOnly(), busy, other, big) == {"busy": 4, "other": 1}


def test_without_known_ends_no_job_passes_a_reservation() -> None:
    """So that what runs ends one day and nothing new has come in between."""
    busy = started(job("busy", "2"), "n1/0 n1/1")
    big, quick = starving("big", "4"), lasting("quick", "1", 1.0)
    assert sized("4", MinimumOnly(), busy, big, quick) == {"busy": 2}


def test_a_lower_priority_does_not_pass_a_reservation() -> None:
    busy = started(lasting("busy", "2", 1000.0, priority=1), "n1/0 n1/1")
    big = replace(starving("big", "4"), spec=replace(starving("big", "4").spec, priority=1))
    slow, quick = lasting("slow", "1", 600.0), lasting("quick", "1", 400.0)
    assert sized("4", MinimumOnly(), busy, big, slow, quick) == {"busy": 2, "quick": 1}


def test_a_reservation_applies_to_its_gpu_type_only() -> None:
    busy = started(lasting("busy", "2", 1000.0, gpu_types=("A",)), "n1/0 n1/1")
    big = replace(starving("big", "4"), spec=replace(starving("big", "4").spec, gpu_types=("A",)))
    slow = lasting("slow", "1", 600.0, gpu_types=("B",))
    assert sized("4 4:B", MinimumOnly(), busy, big, slow) == {"busy": 2, "slow": 1}


@pytest.mark.parametrize("policy", [FirstComeMost(), MinimumOnly()])
def test_a_job_that_could_never_run_reserves_nothing(policy: Policies) -> None:
    big, slow = starving("big", "4"), lasting("slow", "1", 1e6)
    assert sized("4", policy, big, slow, limits={big.id: 3}) == {"slow": 1}
