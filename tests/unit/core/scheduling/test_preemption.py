"""Which changes are worth their cost: every rule of the guard in small scenarios."""

import math
from dataclasses import replace
from typing import Any

from rota.core.estimation.speed_model import SpeedModel
from rota.core.explain.reasons import Fragmented, Protected
from rota.core.model.allocation import Allocation
from rota.core.model.job import GpuShare, Job, JobId, Mode, Running
from rota.core.scheduling.round import Wanted, place_targets
from rota.core.scheduling.view import Rules, View
from tests.unit.core.view_builders import (
    CARD_BYTES,
    Request,
    granted,
    job,
    nodes,
    request,
    runs,
    slots,
    spots,
    view,
)

LINEAR = SpeedModel(one_s=100.0, error=0.0, assumed=tuple(float(n) for n in range(17)))
"""A hundred seconds an epoch on one worker."""


def guarded(before: View, *requests: Request) -> Wanted:
    return place_targets(*granted(before, requests))


def held(after: Wanted) -> dict[str, str]:
    allocations = after.placed.allocations
    return {str(job_id): spots(allocation) for job_id, allocation in allocations.items()}


def running_since(since_s: float, where: str | Allocation) -> Running:
    allocation = slots(where) if isinstance(where, str) else where
    return Running(since_s, allocation, tuple(range(len(allocation))))


def fresh(name: str, where: str, sizes: str = "", **changes: Any) -> Job:
    """A job that started ten seconds ago."""
    return runs(name, where, sizes, phase=running_since(-10.0, where), **changes)


# -- minimum run time -----------------------------------------------------------------------------


def test_a_start_is_always_worth_it() -> None:
    new = job("new", "2")
    assert held(guarded(view(nodes("2"), new), request(new))) == {"new": "n1/0 n1/1"}


def test_a_job_that_has_just_started_is_left_alone() -> None:
    victim, new = fresh("victim", "n1/0 n1/1"), job("new", "2")
    after = guarded(view(nodes("2"), victim, new), request(new))
    assert held(after) == {"victim": "n1/0 n1/1"}
    assert after.waits == {new.id: Protected(victim.id, 50.0)}


def test_the_plan_is_looked_at_again_when_the_first_protection_ends() -> None:
    first, second = fresh("first", "n1/0"), fresh("second", "n1/1", min_runtime_s=20.0)
    new = job("new", "2")
    after = guarded(view(nodes("2"), first, second, new), request(new))
    assert after.wake_at_s == 10.0
    assert after.waits == {new.id: Protected(second.id, 10.0)}


def test_after_its_minimum_run_time_a_job_is_preempted() -> None:
    victim = runs("victim", "n1/0 n1/1", phase=running_since(-60.0, "n1/0 n1/1"))
    new = job("new", "2")
    after = guarded(view(nodes("2"), victim, new), request(new))
    assert held(after) == {"new": "n1/0 n1/1"}
    assert after.wake_at_s == math.inf


def test_a_jobs_own_minimum_run_time_wins() -> None:
    victim, new = fresh("victim", "n1/0", min_runtime_s=5.0), job("new")
    assert held(guarded(view(nodes("1"), victim, new), request(new))) == {"new": "n1/0"}


def test_a_higher_priority_ignores_the_minimum_run_time() -> None:
    victim, new = fresh("victim", "n1/0"), job("new", priority=1)
    assert held(guarded(view(nodes("1"), victim, new), request(new))) == {"new": "n1/0"}


def test_a_higher_priority_on_gpus_of_another_type_lifts_no_protection() -> None:
    victim, rival = fresh("victim", "n1/0"), job("rival")
    vip = job("vip", priority=1, gpu_types=("B",))
    after = guarded(
        view(nodes("1 1:B"), victim, rival, vip), request(rival), request(vip, gpu_type="B")
    )
    assert held(after) == {"victim": "n1/0", "vip": "n2/0"}


def test_a_job_on_a_draining_node_is_moved_however_new() -> None:
    first, second = nodes("1 1")
    a = fresh("a", "n1/0")
    after = guarded(view([replace(first, is_draining=True), second], a), request(a))
    assert held(after) == {"a": "n2/0"}


def test_without_a_guard_the_plan_stands() -> None:
    victim, new = fresh("victim", "n1/0"), job("new")
    rules = Rules(is_guarded=False)
    assert held(guarded(view(nodes("1"), victim, new, rules=rules), request(new))) == {
        "new": "n1/0"
    }


# -- growth ---------------------------------------------------------------------------------------


def growing(epochs: float, **changes: Any) -> Job:
    return runs("a", "n1/0", "1..2", epochs=epochs, speed=LINEAR, **changes)


def test_a_job_grows_if_it_then_ends_sooner() -> None:
    """100 s are left; at twice the speed 50, and 30 for the restart."""
    a = growing(epochs=1.0, progress_at_s=0.0, phase=running_since(0.0, "n1/0"))
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), request(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_job_that_is_nearly_done_does_not_grow() -> None:
    a = growing(epochs=0.5, phase=running_since(0.0, "n1/0"))
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), request(a, 2))) == {"a": "n1/0"}


def test_its_own_measured_restart_counts_once_it_is_known() -> None:
    rules = Rules(min_runtime_s=0.0)
    quick = growing(epochs=0.5, phase=running_since(0.0, "n1/0"), start_s=5.0, stop_s=1.0)
    assert held(guarded(view(nodes("2"), quick, rules=rules), request(quick, 2))) == {
        "a": "n1/0 n1/1"
    }
    slow = growing(epochs=1.0, phase=running_since(0.0, "n1/0"), start_s=60.0, stop_s=1.0)
    assert held(guarded(view(nodes("2"), slow, rules=rules), request(slow, 2))) == {"a": "n1/0"}


def test_a_job_that_resizes_in_place_grows_at_no_cost() -> None:
    a = growing(epochs=0.1, phase=running_since(0.0, "n1/0"), mode=Mode.LIVE)
    rules = Rules(min_runtime_s=0.0)
    assert held(guarded(view(nodes("2"), a, rules=rules), request(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_job_of_unknown_length_grows() -> None:
    a = runs("a", "n1/0", "1..2")
    assert held(guarded(view(nodes("2"), a), request(a, 2))) == {"a": "n1/0 n1/1"}


def test_a_new_job_does_not_grow_even_with_a_higher_priority() -> None:
    a = fresh("a", "n1/0", "1..2", priority=1)
    after = guarded(view(nodes("2"), a), request(a, 2))
    assert held(after) == {"a": "n1/0"}
    assert after.wake_at_s == 50.0


# -- victims --------------------------------------------------------------------------------------


def test_no_job_is_preempted_if_its_gpus_stay_unused() -> None:
    a = runs("a", "n1/0 n1/1", "1..2")
    b = runs("b", "n1/2")
    after = guarded(view(nodes("4"), a, b), request(a, 1))
    assert held(after) == {"a": "n1/0 n1/1", "b": "n1/2"}


def test_a_victim_is_spared_if_its_rival_does_not_grow() -> None:
    """a gives a GPU up for b, which is nearly done and does not take it."""
    a = runs("a", "n1/0 n1/1", "1..2")
    b = runs("b", "n1/2", "1..2", epochs=0.1, speed=LINEAR, phase=running_since(0.0, "n1/2"))
    rules = Rules(min_runtime_s=0.0)
    after = guarded(view(nodes("3"), a, b, rules=rules), request(a, 1), request(b, 2))
    assert held(after) == {"a": "n1/0 n1/1", "b": "n1/2"}


def test_a_victim_is_spared_if_a_protected_job_blocks_the_new_job() -> None:
    """Four GPUs are needed and two are protected: the other two are not released for nothing."""
    young, old = fresh("young", "n1/0 n1/1"), runs("old", "n1/2 n1/3")
    new = job("new", "4")
    after = guarded(view(nodes("4"), young, old, new), request(new))
    assert held(after) == {"young": "n1/0 n1/1", "old": "n1/2 n1/3"}
    assert after.waits == {new.id: Protected(young.id, 50.0)}


def test_jobs_that_lose_least_are_preempted() -> None:
    """Either would do. a has just reported its progress and loses only a restart."""
    a = runs("a", "n1/0 n1/1", progress_at_s=-1.0)
    b = runs("b", "n2/0 n2/1", progress_at_s=-500.0)
    new = job("new", "2")
    after = guarded(view(nodes("2 2"), a, b, new), request(new))
    assert held(after) == {"b": "n2/0 n2/1", "new": "n1/0 n1/1"}


def test_a_long_restart_is_a_loss_as_well_as_work_that_was_not_reported() -> None:
    """b has reported a little later than a, but takes much longer to start."""
    a = runs("a", "n1/0", progress_at_s=-20.0, start_s=1.0)
    b = runs("b", "n1/1", progress_at_s=-10.0, start_s=100.0)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), request(new))
    assert held(after) == {"b": "n1/1", "new": "n1/0"}


def test_work_that_was_reported_and_not_saved_is_a_loss() -> None:
    a = runs("a", "n1/0", progress_at_s=-1.0, epochs_done=0.8, speed=LINEAR)
    b = runs("b", "n1/1", progress_at_s=-10.0, epochs_done=0.8, epochs_saved=0.8, speed=LINEAR)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), request(new))
    assert held(after) == {"a": "n1/0", "new": "n1/1"}


def test_unsaved_work_of_a_listening_program_is_no_loss() -> None:
    a = runs("a", "n1/0", progress_at_s=-1.0, epochs_done=0.8, speed=LINEAR, hears=True)
    b = runs("b", "n1/1", progress_at_s=-10.0, epochs_done=0.8, epochs_saved=0.8, speed=LINEAR)
    new = job("new")
    after = guarded(view(nodes("2"), a, b, new), request(new))
    assert held(after) == {"b": "n1/1", "new": "n1/0"}


def test_recently_started_jobs_are_spared_first() -> None:
    young = fresh("young", "n1/0", progress_at_s=0.0)
    old = runs("old", "n1/1", progress_at_s=-100.0)
    vip = job("vip", priority=1)
    after = guarded(view(nodes("2"), young, old, vip), request(vip))
    assert held(after) == {"young": "n1/0", "vip": "n1/1"}


def test_victims_are_not_spared_if_the_new_job_needs_their_node() -> None:
    """Two GPUs are left over in number, but no two on one node."""
    a, b = runs("a", "n1/0"), runs("b", "n2/0")
    c, d = runs("c", "n1/1"), runs("d", "n2/1")
    new = job("new", "1", gpus=2)
    after = guarded(view(nodes("2 2"), a, b, c, d, new), request(new))
    assert "new" in held(after)
    assert len(after.placed.allocations) == 3


def test_sharers_of_a_gpu_are_victims_by_their_fraction() -> None:
    """The new job needs half a GPU: of two halves, the one that loses less is preempted."""
    half = CARD_BYTES // 2
    a = runs("a", slots("n1/0", half), share=GpuShare(0.5), gpus=1, progress_at_s=-500.0)
    b = runs("b", slots("n1/0", half), share=GpuShare(0.5), gpus=1, progress_at_s=-1.0)
    new = job("new", share=GpuShare(0.5))
    after = guarded(view(nodes("1"), a, b, new), request(new))
    assert after.placed.allocations.keys() == {"a", "new"}


def test_a_job_without_gpus_is_spared_as_well() -> None:
    a = runs("a", slots("n1"), gpus=0, cpus=2.0)
    after = guarded(view(nodes("1", cpus=4.0), a))
    assert held(after) == {"a": "n1"}


def test_a_running_job_is_never_stopped_because_its_new_size_finds_no_place() -> None:
    """Workers of two GPUs; one GPU is free on each node, and a second worker fits on neither."""
    a = runs("a", "n1/0,1", "1..2")
    b, c = runs("b", "n1/2"), runs("c", "n2/0")
    after = guarded(view(nodes("4 2"), a, b, c), request(a, 2), request(b), request(c))
    assert held(after)["a"] == "n1/0,1"


def test_a_job_without_a_place_waits_as_fragmented() -> None:
    a, b = runs("a", "n1/0", "1..2"), runs("b", "n2/0")
    new = job("new", "1", gpus=2)
    after = guarded(view(nodes("2 2"), a, b, new), request(b), request(a, 2), request(new))
    assert after.waits == {new.id: Fragmented(2, 0)}


def test_two_stopped_jobs_free_space_for_one() -> None:
    a, b = runs("a", "n1/0 n1/1"), runs("b", "n1/2 n1/3")
    new = job("new", "3")
    after = guarded(view(nodes("4"), a, b, new), request(new))
    assert held(after) == {"new": "n1/0 n1/1 n1/2"}


def test_an_unchanged_plan_changes_no_job() -> None:
    a = runs("a", "n1/0")
    before = view(nodes("1"), a)
    after = guarded(before, request(a))
    assert after.placed.allocations[JobId("a")] is before.planned[a.id]
