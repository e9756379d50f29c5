"""Space for jobs that wait only because the free GPUs are scattered."""

from dataclasses import replace
from typing import Any

from rota.core.estimation.speed_model import SpeedModel
from rota.core.explain.reasons import Fragmented
from rota.core.model.job import GpuShare, Job, Mode
from rota.core.scheduling.plan import Plan
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules, View
from rota.policies.registry import parse
from tests.unit.core.view_builders import CARD_BYTES, job, nodes, runs, slots, spots, view


def timed(epoch_s: float) -> SpeedModel:
    return SpeedModel(one_s=epoch_s, error=0.0, assumed=tuple(float(n) for n in range(9)))


def decided(before: View) -> Plan:
    plan = decide(before, parse("fifo"))
    assert not plan.violations
    return plan


def held(plan: Plan) -> dict[str, str]:
    return {str(job_id): spots(allocation) for job_id, allocation in plan.allocations.items()}


def reported(name: str, where: str, *, left_s: float, **changes: Any) -> Job:
    """A job that has just reported its progress and has so long to run."""
    return runs(name, where, speed=timed(left_s), progress_at_s=0.0, **changes)


def wide(left_s: float = 1e6, **changes: Any) -> Job:
    """Waits for two GPUs of one node."""
    return job("wide", gpus=2, speed=timed(left_s), submitted_s=1.0, **changes)


def test_with_one_gpu_used_on_each_node_a_job_of_two_makes_one_move() -> None:
    """The consolidation scenario of the Run:ai and CVLab guides; nothing is known of lengths."""
    a, b, new = runs("a", "n1/0"), runs("b", "n2/0"), job("new", gpus=2)
    assert held(decided(view(nodes("2 2"), a, b, new))) == {
        "a": "n2/1",
        "b": "n2/0",
        "new": "n1/0,1",
    }


def test_the_job_that_loses_least_moves() -> None:
    a = reported("a", "n1/0", left_s=1e6, start_s=50.0)
    b = reported("b", "n2/0", left_s=1e6, start_s=20.0)
    plan = decided(view(nodes("2 2"), a, b, wide()))
    assert held(plan) == {"a": "n1/0", "b": "n1/1", "wide": "n2/0,1"}


def test_no_move_if_the_space_soon_becomes_free() -> None:
    """a ends in 10 s: two GPUs gain 20 GPU-seconds, a restart costs 30."""
    a = reported("a", "n1/0", left_s=10.0)
    b = reported("b", "n2/0", left_s=1e6)
    plan = decided(view(nodes("2 2"), a, b, wide()))
    assert held(plan) == {"a": "n1/0", "b": "n2/0"}
    assert plan.waits == {"wide": Fragmented(2, 0)}


def test_a_move_pays_if_the_space_becomes_free_late() -> None:
    """a ends in 16 s: two GPUs gain 32 GPU-seconds, a restart of one costs 30."""
    a = reported("a", "n1/0", left_s=16.0)
    b = reported("b", "n2/0", left_s=1e6)
    assert "wide" in held(decided(view(nodes("2 2"), a, b, wide())))


def test_no_move_for_a_job_shorter_than_the_restart() -> None:
    a, b = reported("a", "n1/0", left_s=1e6), reported("b", "n2/0", left_s=1e6)
    assert "wide" not in held(decided(view(nodes("2 2"), a, b, wide(left_s=14.0))))
    assert "wide" in held(decided(view(nodes("2 2"), a, b, wide(left_s=16.0))))


def test_work_that_was_not_reported_yet_is_lost_by_a_move() -> None:
    a = runs("a", "n1/0", speed=timed(1e6), progress_at_s=-100.0)
    b = runs("b", "n2/0", speed=timed(1e6), progress_at_s=-100.0)
    assert "wide" not in held(decided(view(nodes("2 2"), a, b, wide(left_s=60.0))))
    assert "wide" in held(decided(view(nodes("2 2"), a, b, wide(left_s=70.0))))


def test_space_that_needs_several_ends_is_free_at_the_last_end() -> None:
    """Of the two in the way one ends at once; the other one in a long time."""
    a = reported("a", "n1/0", left_s=1.0)
    b = reported("b", "n1/1", left_s=1e6)
    c = reported("c", "n2/0 n2/1 n2/2", left_s=1e6)
    new = job("new", gpus=4, speed=timed(1e6))
    plan = decided(view(nodes("4 6"), a, b, c, new))
    assert held(plan)["new"] == "n1/0,1,2,3"


def test_a_job_below_its_minimum_run_time_is_not_moved() -> None:
    a = runs("a", "n1/0", since_s=-10.0)
    b = runs("b", "n2/0", since_s=-10.0)
    assert "wide" not in held(decided(view(nodes("2 2"), a, b, wide())))


def test_a_higher_priority_is_not_moved_for_a_lower_one() -> None:
    a, b = runs("a", "n1/0", priority=1), runs("b", "n2/0", priority=1)
    assert "wide" not in held(decided(view(nodes("2 2"), a, b, wide())))
    assert "wide" in held(decided(view(nodes("2 2"), a, b, wide(priority=1))))


def test_a_lower_priority_moves_at_any_cost() -> None:
    a = runs("a", "n1/0", since_s=-10.0)
    b = runs("b", "n2/0", since_s=-10.0)
    assert "wide" in held(decided(view(nodes("2 2"), a, b, wide(left_s=14.0, priority=1))))


def test_a_lower_priority_that_fits_nowhere_else_is_preempted() -> None:
    """Although enough is free in number: on a node that is of no use to the one who waits."""
    rack, other = nodes("2 2")
    on_rack = frozenset({("rack", "1")})
    cluster = [replace(rack, labels=on_rack), other]
    pinned = runs("pinned", "n1/0", node_labels=on_rack)
    free = runs("free", "n1/1")
    urgent = job("urgent", gpus=2, node_labels=on_rack, priority=1)
    assert held(decided(view(cluster, pinned, free, urgent))) == {
        "urgent": "n1/0,1",
        "free": "n2/0",
    }
    equal = job("equal", gpus=2, node_labels=on_rack)
    assert held(decided(view(cluster, pinned, free, equal))) == {"pinned": "n1/0", "free": "n1/1"}


def test_the_lowest_priority_is_preempted_first() -> None:
    rack, other = nodes("2 2")
    on_rack = frozenset({("rack", "1")})
    cluster = [replace(rack, labels=on_rack), other]
    high = runs("high", "n1/0", node_labels=on_rack, priority=1)
    low = runs("low", "n1/1", node_labels=on_rack)
    urgent = job("urgent", node_labels=on_rack, priority=2)
    assert held(decided(view(cluster, high, low, urgent))) == {"urgent": "n1/1", "high": "n1/0"}


def test_without_the_guard_no_job_is_moved() -> None:
    a, b = runs("a", "n1/0"), runs("b", "n2/0")
    rules = Rules(is_guarded=False)
    assert "wide" not in held(decided(view(nodes("2 2"), a, b, wide(), rules=rules)))


def test_no_job_is_moved_if_too_few_gpus_are_free() -> None:
    a, b = runs("a", "n1/0"), runs("b", "n2/0 n2/1")
    plan = decided(view(nodes("2 2"), a, b, wide()))
    assert held(plan) == {"a": "n1/0", "b": "n2/0 n2/1"}


def test_as_few_jobs_as_possible_move() -> None:
    """a would be cheaper to move, but b would have to follow; b does alone."""
    rack, other = nodes("4 4")
    cluster = [replace(rack, labels=frozenset({("rack", "1")})), other]
    a = reported("a", "n1/0", left_s=1e6, start_s=10.0)
    b = reported("b", "n1/1,2", left_s=1e6, start_s=6.0)
    new = job("new", gpus=3, speed=timed(1e6), node_labels=frozenset({("rack", "1")}))
    plan = decided(view(cluster, a, b, new))
    assert held(plan) == {"a": "n1/0", "b": "n2/0,1", "new": "n1/1,2,3"}


def test_a_small_job_does_not_take_the_space_for_a_large_one() -> None:
    """a is cheaper and would be moved first, and then b would fit nowhere."""
    a = reported("a", "n1/0", left_s=1e6, start_s=10.0)
    b = reported("b", "n1/1,2", left_s=1e6, start_s=6.0)
    c = runs("c", "n2/0,1", since_s=-10.0)
    new = job("new", gpus=3, speed=timed(1e6))
    plan = decided(view(nodes("4 4"), a, b, c, new))
    assert held(plan) == {"a": "n1/0", "b": "n2/2,3", "c": "n2/0,1", "new": "n1/1,2,3"}


def test_a_job_goes_only_where_its_labels_allow() -> None:
    fast, slow = nodes("2 2")
    cluster = [replace(fast, labels=frozenset({("disk", "nvme")})), slow]
    a = runs("a", "n1/0", node_labels=frozenset({("disk", "nvme")}))
    b = runs("b", "n2/0")
    plan = decided(view(cluster, a, b, wide()))
    assert held(plan) == {"a": "n1/0", "b": "n1/1", "wide": "n2/0,1"}


def test_several_nodes_are_opened_for_several_workers() -> None:
    small = [runs(f"s{i}", f"n{i}/0") for i in range(1, 5)]
    new = job("new", "2", gpus=2)
    plan = decided(view(nodes("2 2 2 2"), *small, new))
    assert len(plan.allocations) == 5
    assert {len(slot.gpus) for slot in plan.allocations[new.id]} == {2}


def test_sharers_move_together_to_free_a_gpu() -> None:
    half = CARD_BYTES // 2
    a = runs("a", slots("n1/0", half), share=GpuShare(0.5), gpus=1)
    b = runs("b", slots("n2/0", half), share=GpuShare(0.5), gpus=1)
    whole = job("whole")
    plan = decided(view(nodes("1 1"), a, b, whole))
    assert held(plan) == {"a": "n2/0", "b": "n2/0", "whole": "n1/0"}


def test_if_no_node_can_be_opened_all_jobs_are_repacked() -> None:
    """No job fits on another node; a and d have to exchange their nodes."""
    a, b = runs("a", "n1/0,1"), runs("b", "n1/2")
    c, d = runs("c", "n2/0,1"), runs("d", "n2/2")
    e = runs("e", "n3/0,1", mode=Mode.LIVE)
    f = runs("f", "n3/2")
    new = job("new", gpus=3)
    plan = decided(view(nodes("4 4 4"), a, b, c, d, e, f, new))
    assert len(plan.allocations) == 7


def test_the_moved_job_keeps_its_size_and_the_rest_stay_untouched() -> None:
    a, b = runs("a", "n1/0", "1..4"), runs("b", "n2/0")
    others = [runs(f"o{i}", f"n3/{i}") for i in range(4)]
    before = view(nodes("2 2 4"), a, b, *others, wide())
    plan = decided(before)
    assert "wide" in plan.allocations
    assert all(plan.allocations[each.id] is before.planned[each.id] for each in others)
    assert len(plan.allocations[a.id]) == 1
