"""Which changes are worth their cost: every rule of the guard, in small scenes."""

import math
from dataclasses import replace
from typing import Any

from rota.core.guard import Guarded, guard
from rota.core.model import Allocation, Job, JobId, Mode, Running, Share
from rota.core.placement import Wish, place
from rota.core.reasons import Fragmented, Protected
from rota.core.speed import SpeedModel
from rota.core.view import Rules, View
from tests.unit.core.clusters import CARD_BYTES, job, nodes, runs, slots, spots, view, wish

LINEAR = SpeedModel(one_s=100.0, speedups=tuple(float(n) for n in range(17)), error=0.0)
"""A hundred seconds an epoch on one worker."""


def guarded(before: View, *wishes: Wish) -> Guarded:
    return guard(before, wishes, placed=place(before, wishes))


def held(after: Guarded) -> dict[str, str]:
    return {str(job_id): spots(allocation) for job_id, allocation in after.allocations.items()}


def running_since(since_s: float, where: str | Allocation) -> Running:
    allocation = slots(where) if isinstance(where, str) else where
    return Running(since_s, allocation, tuple(range(len(allocation))))


def fresh(name: str, where: str, sizes: str = "", **changes: Any) -> Job:
    """A job that started ten seconds ago."""
    return runs(name, where, sizes, phase=running_since(-10.0, where), **changes)


# -- minimum run time -----------------------------------------------------------------------------


def test_a_start_is_always_worth_it() -> None:
    new = job("new", "2")
    assert held(guarded(view(nodes("2"), new), wish(new))) == {"new": "n1/0 n1/1"}


def test_a_job_that_has_just_started_is_left_alone() -> None:
    victim, new = fresh("victim", "n1/0 n1/1"), job("new", "2")
    after = guarded(view(nodes("2"), victim, new), wish(new))
    assert held(after) == {"victim": "n1/0 n1/1"}
    assert after.waits == {new.id: Protected(victim.id, 50.0)}


def test_the_plan_is_looked_at_again_when_the_first_protection_ends() -> None:
    first, second = fresh("first", "n1/0"), fresh("second", "n1/1", min_runtime_s=20.0)
    new = job("new", "2")
    after = guarded(view(nodes("2"), first, second, new), wish(new))
    assert after.wake_at_s == 10.0
    assert after.waits == {new.id: Protected(second.id, 10.0)}


def test_after_its_minimum_run_time_a_job_gives_way() -> None:
    victim = runs("victim", "n1/0 n1/1", phase=running_since(-60.0, "n1/0 n1/1"))
    new = job("new", "2")
    after = guarded(view(nodes("2"), victim, new), wish(new))
    assert held(after) == {"new": "n1/0 n1/1"}
    assert after.wake_at_s == math.inf


def test_a_jobs_own_minimum_run_time_wins() -> None:
    victim, new = fresh("victim", "n1/0", min_runtime_s=5.0), job("new")
    assert held(guarded(view(nodes("1"), victim, new), wish(new))) == {"new": "n1/0"}


def test_a_higher_priority_need_not_wait_for_it() -> None:
    victim, new = fresh("victim", "n1/0"), job("new", priority=1)
    assert held(guarded(view(nodes("1"), victim, new), wish(new))) == {"new": "n1/0"}


def test_a_higher_priority_on_gpus_of_another_type_lifts_no_protection() -> None:
    victim, rival = fresh("victim", "n1/0"), job("rival")
    vip = job("vip", priority=1, gpu_types=("B",))
    after = guarded(view(nodes("1 1:B"), victim, rival, vip), wish(rival), wish(vip, gpu_type="B"))
    assert held(after) == {"victim": "n1/0", "vip": "n2/0"}


def test_a_job_on_a_draining_node_is_moved_however_new() -> None:
    first, second = nodes("1 1")
    a = fresh("a", "n1/0")
    after = guarded(view([replace(first, is_draining=True), second], a), wish(a))
    assert held(after) == {"a": "n2/0"}


def test_without_a_guard_the_plan_stands() -> None:
    victim, new = fresh("victim", "n1/0"), job("new")
    rules = Rules(is_guarded=False)
    assert held(guarded(view(nodes("1"), victim, new, rules=rules), wish(new))) == {"new": "n1/0"}


# -- growth ---------------------------------------------------------------------------------------


def growing(epochs: float, **changes: Any) -> Job:
    return runs("a", "n1/0", "1..2", epochs=epochs, speed=LINEAR, **changes)


def test_a_job_grows_if_it_then_ends_sooner() -> None:
    """100 s are left; at twice the speed 50, and 30 for the restart."""
    a = growing(epochs=1.0, progress_at_s=0.0, phase=running_since(0.0, "n1/0"))
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), wish(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_job_that_is_nearly_done_does_not_grow() -> None:
    a = growing(epochs=0.5, phase=running_since(0.0, "n1/0"))
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), wish(a, 2))) == {"a": "n1/0"}


def test_its_own_measured_restart_counts_once_it_is_known() -> None:
    rules = Rules(min_runtime_s=0.0)
    quick = growing(epochs=0.5, phase=running_since(0.0, "n1/0"), start_s=5.0, stop_s=1.0)
    assert held(guarded(view(nodes("2"), quick, rules=rules), wish(quick, 2))) == {"a": "n1/0 n1/1"}
    slow = growing(epochs=1.0, phase=running_since(0.0, "n1/0"), start_s=60.0, stop_s=1.0)
    assert held(guarded(view(nodes("2"), slow, rules=rules), wish(slow, 2))) == {"a": "n1/0"}


def test_a_job_that_resizes_in_place_grows_at_no_cost() -> None:
    a = growing(epochs=0.1, phase=running_since(0.0, "n1/0"), mode=Mode.LIVE)
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), wish(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_job_of_unknown_length_grows() -> None:
    a = runs("a", "n1/0", "1..2")
    assert held(guarded(view(nodes("2"), a), wish(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_program_that_would_begin_anew_does_not_grow() -> None:
    a = runs("a", "n1/0", "1..2", mode=Mode.FIXED)
    assert held(guarded(view(nodes("2"), a), wish(a, 2))) == {"a": "n1/0"}


def test_a_new_job_does_not_grow_even_with_a_higher_priority() -> None:
    a = fresh("a", "n1/0", "1..2", priority=1)
    after = guarded(view(nodes("2"), a), wish(a, 2))
    assert held(after) == {"a": "n1/0"}
    assert after.wake_at_s == 50.0


# -- victims --------------------------------------------------------------------------------------


def test_nobody_gives_way_if_nobody_uses_the_gpus() -> None:
    a = runs("a", "n1/0 n1/1", "1..2")
    b = runs("b", "n1/2")
    after = guarded(view(nodes("4"), a, b), wish(a, 1))
    assert held(after) == {"a": "n1/0 n1/1", "b": "n1/2"}


def test_a_victim_is_spared_whose_rival_does_not_grow_after_all() -> None:
    """a gives a GPU up for b, which is nearly done and does not take it."""
    a = runs("a", "n1/0 n1/1", "1..2")
    b = runs("b", "n1/2", "1..2", epochs=0.1, speed=LINEAR, phase=running_since(0.0, "n1/2"))
    rules = Rules(min_runtime_s=0.0)
    after = guarded(view(nodes("3"), a, b, rules=rules), wish(a, 1), wish(b, 2))
    assert held(after) == {"a": "n1/0 n1/1", "b": "n1/2"}


def test_a_victim_is_spared_if_another_protected_one_keeps_the_newcomer_out() -> None:
    """Four GPUs are needed, two of them are protected: the other two are not given up in vain."""
    young, old = fresh("young", "n1/0 n1/1"), runs("old", "n1/2 n1/3")
    new = job("new", "4")
    after = guarded(view(nodes("4"), young, old, new), wish(new))
    assert held(after) == {"young": "n1/0 n1/1", "old": "n1/2 n1/3"}
    assert after.waits == {new.id: Protected(young.id, 50.0)}


def test_those_who_lose_least_give_way() -> None:
    """Either would do. a has just reported its progress and loses only a restart."""
    a = runs("a", "n1/0 n1/1", progress_at_s=-1.0)
    b = runs("b", "n2/0 n2/1", progress_at_s=-500.0)
    new = job("new", "2")
    after = guarded(view(nodes("2 2"), a, b, new), wish(new))
    assert held(after) == {"b": "n2/0 n2/1", "new": "n1/0 n1/1"}


def test_a_long_restart_is_a_loss_as_well_as_work_that_was_not_reported() -> None:
    """b has reported a little later than a, but takes much longer to start."""
    a = runs("a", "n1/0", progress_at_s=-20.0, start_s=1.0)
    b = runs("b", "n1/1", progress_at_s=-10.0, start_s=100.0)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), wish(new))
    assert held(after) == {"b": "n1/1", "new": "n1/0"}


def test_work_that_was_reported_and_not_saved_is_a_loss() -> None:
    a = runs("a", "n1/0", progress_at_s=-1.0, epochs_done=0.8, speed=LINEAR)
    b = runs("b", "n1/1", progress_at_s=-10.0, epochs_done=0.8, epochs_saved=0.8, speed=LINEAR)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), wish(new))
    assert held(after) == {"a": "n1/0", "new": "n1/1"}


def test_but_not_for_a_program_that_saves_it_when_it_is_asked_to_stop() -> None:
    a = runs("a", "n1/0", progress_at_s=-1.0, epochs_done=0.8, speed=LINEAR, hears=True)
    b = runs("b", "n1/1", progress_at_s=-10.0, epochs_done=0.8, epochs_saved=0.8, speed=LINEAR)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), wish(new))
    assert held(after) == {"b": "n1/1", "new": "n1/0"}


def test_against_a_higher_priority_the_ones_who_just_started_are_spared_first() -> None:
    young = fresh("young", "n1/0", progress_at_s=0.0)
    old = runs("old", "n1/1", progress_at_s=-100.0)
    vip = job("vip", priority=1)
    after = guarded(view(nodes("2"), young, old, vip), wish(vip))
    assert held(after) == {"young": "n1/0", "vip": "n1/1"}


def test_victims_are_not_spared_where_the_newcomer_needs_their_very_node() -> None:
    """Two GPUs are left over in number, but no two on one node."""
    a, b = runs("a", "n1/0"), runs("b", "n2/0")
    c, d = runs("c", "n1/1"), runs("d", "n2/1")
    new = job("new", "1", gpus=2)
    after = guarded(view(nodes("2 2"), a, b, c, d, new), wish(new))
    assert "new" in held(after)
    assert len(after.allocations) == 3


def test_sharers_of_a_card_are_victims_by_their_fraction() -> None:
    """The newcomer needs half a card: of two halves the one that loses less is given up."""
    half = CARD_BYTES // 2
    a = runs("a", slots("n1/0", half), share=Share(0.5), gpus=1, progress_at_s=-500.0)
    b = runs("b", slots("n1/0", half), share=Share(0.5), gpus=1, progress_at_s=-1.0)
    new = job("new", share=Share(0.5))
    after = guarded(view(nodes("1"), a, b, new), wish(new))
    assert after.allocations.keys() == {"a", "new"}


def test_a_job_without_gpus_is_spared_as_well() -> None:
    a = runs("a", slots("n1"), gpus=0, cpus=2.0)
    after = guarded(view(nodes("1", cpus=4.0), a))
    assert held(after) == {"a": "n1"}


def test_a_running_job_is_never_stopped_because_its_new_size_finds_no_place() -> None:
    """Workers of two GPUs; one GPU is free on each node, and a second worker fits on neither."""
    a = runs("a", "n1/0,1", "1..2")
    b, c = runs("b", "n1/2"), runs("c", "n2/0")
    after = guarded(view(nodes("4 2"), a, b, c), wish(a, 2), wish(b), wish(c))
    assert held(after)["a"] == "n1/0,1"


def test_a_job_that_finds_no_place_says_that_it_is_fragmented() -> None:
    a, b = runs("a", "n1/0", "1..2"), runs("b", "n2/0")
    new = job("new", "1", gpus=2)
    after = guarded(view(nodes("2 2"), a, b, new), wish(b), wish(a, 2), wish(new))
    assert after.waits == {new.id: Fragmented(1, 0)}


def test_two_that_stop_make_room_for_one_and_nobody_is_worse_off_than_planned() -> None:
    a, b = runs("a", "n1/0 n1/1"), runs("b", "n1/2 n1/3")
    new = job("new", "3")
    after = guarded(view(nodes("4"), a, b, new), wish(new))
    assert held(after) == {"new": "n1/0 n1/1 n1/2"}


def test_an_unchanged_plan_costs_nobody_anything() -> None:
    a = runs("a", "n1/0")
    before = view(nodes("1"), a)
    after = guarded(before, wish(a))
    assert after.allocations[JobId("a")] is before.planned[a.id]
