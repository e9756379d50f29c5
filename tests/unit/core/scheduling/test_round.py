"""Whole rounds: divide, size, place, guard and check together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rota.core.explain.reasons import Fragmented, Impossible
from rota.core.model.job import GpuShare, Job, JobId, Queued
from rota.core.scheduling.divide import divide
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.policy_api import Budget, Targets
from rota.core.scheduling.round import decide
from rota.core.scheduling.sizing import size
from rota.core.scheduling.view import Rules, View
from rota.policies.registry import parse
from tests.unit.core.view_builders import job, nodes, runs, spots, view


def held(plan: Plan) -> dict[str, str]:
    assert not plan.violations
    return {str(job_id): spots(allocation) for job_id, allocation in plan.allocations.items()}


# -- divide ---------------------------------------------------------------------------------------


def pools(before: View) -> list[tuple[str, list[str]]]:
    return [(pool.gpu_type, [job.spec.name for job in pool.jobs]) for pool in divide(before).pools]


def test_a_higher_priority_and_each_gpu_type_has_a_pool_of_its_own() -> None:
    low, high = job("low", gpu_types=("A",)), job("high", priority=2, gpu_types=("A",))
    other, cpu = job("other", gpu_types=("B",)), job("cpu", gpus=0)
    assert pools(view(nodes("2 2:B"), low, high, other, cpu)) == [
        ("A", ["high"]),
        ("", ["cpu"]),
        ("A", ["low"]),
        ("B", ["other"]),
    ]


def test_a_job_that_accepts_several_types_keeps_the_one_it_has() -> None:
    a = runs("a", "n2/0", gpu_types=("A", "B"))
    assert pools(view(nodes("2 2:B"), a)) == [("B", ["a"])]


def test_a_job_that_accepts_several_types_gets_the_first_that_has_room_for_it() -> None:
    both = [job(f"j{i}", "2", gpu_types=("B", "A")) for i in range(3)]
    assert pools(view(nodes("4 2:B"), *both)) == [("A", ["j1", "j2"]), ("B", ["j0"])]


def test_an_impossible_job_is_reported_and_not_sized() -> None:
    big, odd = job("big", "9"), job("odd", gpu_types=("H100",))
    wide = job("wide", gpus=5)
    division = divide(view(nodes("4 4"), big, odd, wide))
    assert division.impossible.keys() == {"big", "odd", "wide"}
    assert division.pools == ()
    plan = decide(view(nodes("4 4"), big), parse("fifo"))
    assert isinstance(plan.waits[big.id], Impossible)


# -- size -----------------------------------------------------------------------------------------


def test_a_higher_priority_is_sized_first_on_what_there_is() -> None:
    low, high = job("low", "1..4"), job("high", "1..3", priority=1)
    before = view(nodes("4"), low, high)
    targets = size(divide(before), parse("elastic-fifo"))
    assert targets == {"high": 3, "low": 1}


def test_a_job_without_gpus_gets_what_it_asked_for() -> None:
    cpu = job("cpu", "1..4@3", gpus=0)
    before = view(nodes("1"), cpu)
    assert size(divide(before), parse("fifo")) == {"cpu": 3}
    assert size(divide(before), parse("fifo"), fits={cpu.id: 0}) == {}


@dataclass(frozen=True)
class Careless:
    """Returns the sizes of the test, or the name of an unknown job."""

    targets: dict[str, int]

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        del jobs, budget, now
        return {JobId(name): workers for name, workers in self.targets.items()}


def test_a_policy_that_sizes_an_unknown_job_is_reported() -> None:
    plan = decide(view(nodes("4"), job("a")), Careless({"nobody": 1}))
    assert plan.violations == ("the policy sized an unknown job: 'nobody'",)


def test_a_plan_that_breaks_a_rule_is_not_adopted() -> None:
    a = runs("a", "n1/0", "1..2")
    before = view(nodes("8"), a, rules=Rules(is_guarded=False))
    plan = decide(before, Careless({"a": 7}))
    assert plan.violations == ("the policy gave a 7 workers, not 0 or 1..2",)
    assert plan.allocations == before.planned


# -- rounds ---------------------------------------------------------------------------------------


def test_a_job_without_a_place_is_sized_again_at_what_fits() -> None:
    """Workers of two GPUs on nodes of three: the policy counts six, two workers fit."""
    a = job("a", "1..3", gpus=2)
    assert held(decide(view(nodes("3 3"), a), parse("elastic-fifo"))) == {"a": "n1/0,1 n2/0,1"}


def test_the_next_in_line_gets_what_the_fragmented_job_cannot_use() -> None:
    busy = [runs("b1", "n1/0"), runs("b2", "n2/0")]
    wide, small = job("wide", gpus=2), job("small", "2")
    before = view(nodes("2 2"), *busy, wide, small, rules=Rules(is_guarded=False))
    plan = decide(before, parse("fifo"))
    assert held(plan) == {"b1": "n1/0", "b2": "n2/0", "small": "n1/1 n2/1"}
    assert plan.waits == {wide.id: Fragmented(2, 0)}


@dataclass(frozen=True)
class OnlyWide:
    """Sizes jobs named wide at their minimum, as far as they fit, and tells all others to wait."""

    def size(self, jobs: Sequence[Job], budget: Budget, *, now: float) -> Targets:
        del now
        wide = (job for job in jobs if job.spec.name.startswith("wide"))
        return {
            job.id: job.spec.min_workers
            for job in wide
            if job.spec.min_workers <= budget.limit(job) and budget.grant(job, job.spec.min_workers)
        }


def test_a_job_that_the_policy_told_to_wait_is_not_started_on_scattered_gpus() -> None:
    """No wish of the policy fits, however often it is asked."""
    busy = [runs(f"wide{i}", f"n{i}/0", gpus=1) for i in (1, 2)]
    wide = [job(f"wide{name}", gpus=2) for name in "abcd"]
    before = view(nodes("2 2"), *busy, *wide, job("small"), rules=Rules(is_guarded=False))
    assert held(decide(before, OnlyWide())) == {"wide1": "n1/0", "wide2": "n2/0"}


def test_a_job_that_the_policy_told_to_wait_is_not_started_after_a_defragmentation() -> None:
    """The moved job leaves a GPU free for which the policy has no use."""
    busy = [runs(f"wide{i}", f"n{i}/0", gpus=1) for i in (1, 2)]
    before = view(nodes("2 2 1"), *busy, job("wide", gpus=2), job("small"))
    allocations = decide(before, OnlyWide()).allocations
    assert allocations.keys() == {"wide1", "wide2", "wide"}


def test_a_preempted_job_goes_back_to_the_front_of_its_class() -> None:
    """It gave way to a higher priority; when that is gone, it comes before one that came later."""
    old = replace(job("old", "2"), phase=Queued(50.0), submitted_s=0.0)
    new = replace(job("new", "2"), phase=Queued(10.0), submitted_s=10.0)
    assert held(decide(view(nodes("2"), old, new), parse("fifo"))) == {"old": "n1/0 n1/1"}


def test_a_quiet_round_changes_nothing_and_keeps_every_allocation() -> None:
    a, b, c = runs("a", "n1/0 n2/1"), runs("b", "n2/0"), job("c", "4")
    before = view(nodes("2 2"), a, b, c)
    plan = decide(before, parse("fifo"))
    assert plan.allocations == before.planned
    assert all(plan.allocations[job_id] is held for job_id, held in before.planned.items())


def test_shares_and_whole_gpus_are_planned_together() -> None:
    tenths = [job(f"t{i}", share=GpuShare(0.1)) for i in range(10)]
    whole = job("whole", "3")
    plan = decide(view(nodes("4"), *tenths, whole), parse("fifo"))
    assert len(held(plan)) == 11
    assert {held(plan)[f"t{i}"] for i in range(10)} == {"n1/3"}


def test_a_round_follows_when_a_protection_ends() -> None:
    young = runs("young", "n1/0 n1/1", since_s=-10.0)
    vip = job("vip", "2", submitted_s=-100.0)
    plan = decide(view(nodes("2"), vip, young), parse("fifo"))
    assert held(plan) == {"young": "n1/0 n1/1"}
    assert plan.wake_at_s == 50.0


# -- pinned sizes ---------------------------------------------------------------------------------


def test_a_pin_that_no_longer_fits_after_the_second_sizing_stops_no_job() -> None:
    """`big` fits no node, so it is left out. Then `wide` leaves only 2 GPUs for the pinned 3."""
    x, y = runs("x", "n1/0"), runs("y", "n2/0 n2/1")
    pinned = runs("pinned", "n1/1", "1..4", pinned_workers=3)
    waiting = job("big", gpus=4), job("wide", "5")
    before = view(nodes("5 5"), x, y, *waiting, pinned, rules=Rules(is_guarded=False))
    plan = held(decide(before, parse("fifo")))
    assert plan["pinned"] == "n1/1"
    assert plan.keys() == {"x", "y", "wide", "pinned"}
