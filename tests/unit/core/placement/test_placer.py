"""Placements on small clusters, including published defects of other schedulers."""

from dataclasses import replace

import pytest

from rota.core.model.job import GpuShare, Job, JobId
from rota.core.model.node import Node
from rota.core.model.units import GIB
from rota.core.placement.placer import place
from rota.core.scheduling.view import View
from tests.unit.core.view_builders import (
    CARD_BYTES,
    job,
    n_by_node,
    nodes,
    place_all,
    placed_anew,
    request,
    runs,
    slots,
    spots,
    view,
    where,
    wishes_of,
)


def sizes_on(cluster: str, *sizes: int) -> list[dict[str, int]]:
    """Jobs of these sizes on an empty cluster: how many workers each has on which node."""
    jobs = [job(f"j{place_in_list}", str(size)) for place_in_list, size in enumerate(sizes)]
    placed = placed_anew(nodes(cluster), *jobs)
    assert not placed.short
    return [n_by_node(placed.allocations[each.id]) for each in jobs]


# -- defects of Voda's placement ------------------------------------------------------------------


def test_six_workers_on_two_nodes_of_four_are_placed_once() -> None:
    """Its best fit placed the whole job again after a part: four and six."""
    assert sizes_on("4 4", 6) == [{"n1": 4, "n2": 2}]


def test_six_and_two_on_two_nodes_of_four_do_not_hang() -> None:
    assert sizes_on("4 4", 6, 2) == [{"n1": 4, "n2": 2}, {"n2": 2}]


def test_three_three_three_two_one_on_three_nodes_of_four_leave_nobody_out() -> None:
    found = sizes_on("4 4 4", 3, 3, 3, 2, 1)
    assert [sum(each.values()) for each in found] == [3, 3, 3, 2, 1]
    assert [len(each) for each in found] == [1, 1, 1, 2, 1]


def test_eight_workers_on_two_nodes_of_four_overbook_neither() -> None:
    assert sizes_on("4 4", 8) == [{"n1": 4, "n2": 4}]


def test_six_four_and_two_on_three_nodes_of_four_do_not_hang() -> None:
    assert sizes_on("4 4 4", 6, 4, 2) == [{"n1": 4, "n2": 2}, {"n3": 4}, {"n2": 2}]


def test_a_job_of_eight_is_not_bound_to_the_node_of_two() -> None:
    assert sizes_on("2 8", 8) == [{"n2": 8}]


def test_a_job_of_eight_moves_to_the_node_of_eight_however_many_it_had_on_the_node_of_two() -> None:
    """Its assignment by overlap alone bound a large plan to a small node."""
    big = runs("big", "n1/0 n1/1", "2..8")
    placed = place_all(view(nodes("2 8"), big), [request(big, 8)])
    assert n_by_node(placed.allocations[big.id]) == {"n2": 8}


def test_workers_stay_on_their_nodes_from_round_to_round() -> None:
    """Its worker numbers followed the order of a hash map."""
    cluster = nodes("4 4 4")
    wide = runs("wide", "n3/0 n1/2 n3/1 n1/0 n2/3 n2/1")
    other = runs("other", "n1/1")
    before = view(cluster, wide, other)
    placed = place_all(before, [request(other), request(wide)])
    assert placed.allocations[wide.id] is before.planned[wide.id]


@pytest.mark.parametrize(
    ("cluster", "sizes", "found"),
    [
        ("8 4 2", (2, 4, 8), [{"n3": 2}, {"n2": 4}, {"n1": 8}]),
        ("8 4 2", (5, 3), [{"n1": 5}, {"n1": 3}]),
        ("2 3 8", (9,), [{"n3": 8, "n1": 1}]),
        ("1 2 4 8", (15,), [{"n4": 8, "n3": 4, "n2": 2, "n1": 1}]),
        ("8 2 2", (10,), [{"n1": 8, "n2": 2}]),
    ],
)
def test_nodes_of_mixed_sizes(
    cluster: str, sizes: tuple[int, ...], found: list[dict[str, int]]
) -> None:
    assert sizes_on(cluster, *sizes) == found


# -- fewest nodes, tightest fit -------------------------------------------------------------------


def test_a_small_job_goes_where_the_least_is_left_over() -> None:
    taken = runs("taken", "n2/0 n2/1")
    small = job("small", "2")
    placed = place_all(view(nodes("4 4"), taken, small), [request(taken), request(small)])
    assert spots(placed.allocations[small.id]) == "n2/2 n2/3"


def test_a_big_job_gets_whole_nodes() -> None:
    taken = runs("taken", "n1/0")
    big = job("big", "8")
    placed = place_all(view(nodes("4 4 4"), taken, big), [request(taken), request(big)])
    assert n_by_node(placed.allocations[big.id]) == {"n2": 4, "n3": 4}


def test_two_jobs_of_several_nodes_share_none_if_no_more_nodes_are_needed() -> None:
    """n1 has most room, and would be taken first if it did not hold a part of another."""
    wide = runs("wide", "n1/0 n2/0 n2/1 n2/2 n2/3 n2/4 n2/5 n2/6 n2/7")
    fill = runs("fill", "n1/1 n1/2 n1/3 n1/4")
    new = job("new", "4")
    cluster = nodes("8 8 2 2")
    placed = place_all(view(cluster, wide, fill, new), [request(wide), request(fill), request(new)])
    assert n_by_node(placed.allocations[new.id]) == {"n3": 2, "n4": 2}


def test_two_jobs_of_several_nodes_share_one_rather_than_take_more_nodes() -> None:
    wide = runs("wide", "n1/0 n2/0 n2/1 n2/2 n2/3")
    new = job("new", "4")
    cluster = nodes("4 4 1 1 1 1")
    placed = place_all(view(cluster, wide, new), [request(wide), request(new)])
    assert n_by_node(placed.allocations[new.id]) == {"n1": 3, "n3": 1}


def test_a_job_of_one_node_may_sit_beside_one_of_several() -> None:
    wide = runs("wide", "n1/0 n2/0 n2/1 n2/2 n2/3")
    small = job("small", "3")
    placed = place_all(view(nodes("4 4 4"), wide, small), [request(wide), request(small)])
    assert n_by_node(placed.allocations[small.id]) == {"n1": 3}


def test_large_workers_are_placed_before_many_small_ones() -> None:
    """Four single GPUs first would leave a node for only one of the workers of three."""
    many = job("many", "4")
    large = [job(f"large{i}", gpus=3) for i in (1, 2)]
    placed = placed_anew(nodes("5 5"), many, *large)
    assert where(placed) == {
        "many": "n1/3 n1/4 n2/3 n2/4",
        "large1": "n1/0,1,2",
        "large2": "n2/0,1,2",
    }


def test_a_higher_priority_is_placed_first_however_small() -> None:
    small = job("small", "1", priority=1, gpus=2)
    big = job("big", "4")
    placed = placed_anew(nodes("4"), big, small)
    assert where(placed) == {"small": "n1/0,1"}
    assert placed.short == {big.id: 2}


# -- what a worker needs --------------------------------------------------------------------------


def test_a_worker_of_several_gpus_has_them_on_one_node() -> None:
    placed = placed_anew(nodes("3 3 3"), job("a", "3", gpus=2))
    assert where(placed) == {"a": "n1/0,1 n2/0,1 n3/0,1"}
    assert placed_anew(nodes("1 1"), job("a", "1", gpus=2)).short == {"a": 0}


@pytest.mark.parametrize(
    ("limits", "needs"),
    [
        ({"cpus": 4.0}, {"cpus": 2.0}),
        ({"memory_bytes": 10 * GIB}, {"memory_bytes": 5 * GIB}),
        ({"max_workers": 2}, {}),
    ],
)
def test_cpus_memory_and_numbers_of_workers_count_besides_gpus(
    limits: dict[str, float], needs: dict[str, float]
) -> None:
    placed = placed_anew(nodes("4 4", **limits), job("a", "4", **needs))
    assert n_by_node(placed.allocations[JobId("a")]) == {"n1": 2, "n2": 2}
    assert placed_anew(nodes("4 4", **limits), job("a", "5", **needs)).short == {"a": 4}


def test_tenths_of_a_cpu_add_up() -> None:
    jobs = [job(f"j{i}", "1", cpus=0.1) for i in range(10)]
    assert not placed_anew(nodes("16", cpus=1.0), *jobs).short


def test_a_job_without_gpus_is_bounded_by_cpus_and_memory_alone() -> None:
    cluster = nodes("0 4", cpus=8.0)
    placed = placed_anew(cluster, job("cpu", "3", gpus=0, cpus=4.0))
    assert n_by_node(placed.allocations[JobId("cpu")]) == {"n1": 2, "n2": 1}


def test_labels_are_required() -> None:
    plain, fast = nodes("4 4")
    cluster = [plain, replace(fast, labels=frozenset({("disk", "nvme"), ("rack", "1")}))]
    picky = job("picky", "5", node_labels=frozenset({("disk", "nvme")}))
    assert placed_anew(cluster, picky).short == {"picky": 4}
    picky = job("picky", "3", node_labels=frozenset({("disk", "nvme")}))
    assert n_by_node(placed_anew(cluster, picky).allocations[picky.id]) == {"n2": 3}


def test_gpu_types_are_required_and_never_mixed() -> None:
    cluster = nodes("2 4:B")
    placed = placed_anew(cluster, job("a", "3"))
    assert placed.short == {"a": 2}
    placed = placed_anew(cluster, job("b", "3"), gpu_type="B")
    assert n_by_node(placed.allocations[JobId("b")]) == {"n2": 3}


def test_a_job_that_gets_another_type_moves_to_it() -> None:
    a = runs("a", "n1/0", gpu_types=("A", "B"))
    placed = place_all(view(nodes("2 2:B"), a), [request(a, gpu_type="B")])
    assert where(placed) == {"a": "n2/0"}
    assert placed.left.n_free("A") == 2


# -- shares ---------------------------------------------------------------------------------------


def test_shares_go_to_the_fullest_gpu_that_still_fits() -> None:
    half = runs("half", slots("n1/0", CARD_BYTES // 2), share=GpuShare(0.5), gpus=1)
    most = runs("most", slots("n2/1", CARD_BYTES * 3 // 4), share=GpuShare(0.75), gpus=1)
    quarter = job("quarter", share=GpuShare(0.25))
    third = job("third", share=GpuShare(0.3))
    jobs = [half, most, quarter, third]
    placed = place_all(view(nodes("2 2"), *jobs), [request(each) for each in jobs])
    assert spots(placed.allocations[quarter.id]) == "n2/1"
    assert spots(placed.allocations[third.id]) == "n1/0"


def test_ten_tenths_share_one_gpu() -> None:
    jobs = [job(f"j{i}", share=GpuShare(0.1)) for i in range(10)]
    placed = placed_anew(nodes("2"), *jobs)
    assert set(where(placed).values()) == {"n1/0"}


def test_whole_and_shared_use_of_a_gpu_never_mix() -> None:
    tiny = job("tiny", share=GpuShare(0.01))
    whole = job("whole", "2")
    placed = placed_anew(nodes("2"), tiny, whole)
    assert where(placed) == {"whole": "n1/0 n1/1"}
    assert placed.short == {tiny.id: 0}


def test_observed_memory_replaces_the_declared_share() -> None:
    """Declared half a card, seen to use an eighth: with a margin of a tenth seven fit a card."""
    frugal = [
        job(f"j{i}", share=GpuShare(0.5), memory_bytes_seen=CARD_BYTES // 8) for i in range(8)
    ]
    placed = placed_anew(nodes("1"), *frugal)
    assert len(placed.allocations) == 7
    slot = placed.allocations[frugal[0].id][0]
    assert slot.share_bytes == int(CARD_BYTES / 8 * 1.1)
    assert slot.fraction == pytest.approx(0.1375)


def test_a_share_that_uses_more_than_declared_gets_more() -> None:
    greedy = [job(f"j{i}", share=GpuShare(0.25), memory_bytes_seen=CARD_BYTES // 2) for i in "ab"]
    placed = placed_anew(nodes("1"), *greedy)
    assert len(placed.allocations) == 1


def test_a_share_that_filled_its_gpu_still_fits() -> None:
    """The margin must not make it larger than any card."""
    full = job("full", share=GpuShare(0.9), memory_bytes_seen=CARD_BYTES - 1)
    assert where(placed_anew(nodes("1"), full)) == {"full": "n1/0"}


def test_a_share_larger_than_any_gpu_does_not_fit() -> None:
    large = job("large", share=GpuShare(memory_bytes=CARD_BYTES + 1))
    assert placed_anew(nodes("1"), large).short == {"large": 0}


# -- changes --------------------------------------------------------------------------------------


def test_a_job_that_grows_stays_and_takes_more_on_its_node() -> None:
    a = runs("a", "n1/1", "1..3")
    placed = place_all(view(nodes("4 4"), a), [request(a, 3)])
    assert spots(placed.allocations[a.id]) == "n1/1 n1/0 n1/2"


def test_a_job_that_grows_moves_if_that_puts_it_on_one_node() -> None:
    a = runs("a", "n1/0 n1/1", "2..4")
    placed = place_all(view(nodes("2 4"), a), [request(a, 4)])
    assert n_by_node(placed.allocations[a.id]) == {"n2": 4}


def test_a_job_that_grows_over_several_nodes_keeps_the_one_it_has() -> None:
    a = runs("a", "n2/0 n2/1", "2..6")
    placed = place_all(view(nodes("4 4 4"), a), [request(a, 6)])
    assert spots(placed.allocations[a.id]).startswith("n2/0 n2/1 n2/2 n2/3 ")


def test_a_job_that_shrinks_gives_up_its_last_workers() -> None:
    a = runs("a", "n2/3 n1/0 n2/1", "1..3")
    placed = place_all(view(nodes("1 4"), a), [request(a, 1)])
    assert spots(placed.allocations[a.id]) == "n2/3"
    assert placed.left.n_free("A") == 4


def test_a_job_that_shrinks_moves_to_the_node_of_worker_0() -> None:
    a = runs("a", "n1/0 n2/0 n1/1", "2..3")
    placed = place_all(view(nodes("2 2"), a), [request(a, 2)])
    assert spots(placed.allocations[a.id]) == "n1/0 n1/1"


def test_a_job_that_shrinks_keeps_its_nodes_if_no_node_fits_it() -> None:
    a = runs("a", "n1/0 n2/0 n1/1", "2..3")
    b = runs("b", "n2/1")
    c = job("c", "1", priority=1)
    placed = place_all(view(nodes("2 2"), a, b, c), [request(a, 2), request(b), request(c)])
    assert spots(placed.allocations[a.id]) == "n1/0 n2/0"
    assert spots(placed.allocations[c.id]) == "n1/1"


def test_a_running_job_that_cannot_grow_as_wanted_keeps_what_it_has() -> None:
    a = runs("a", "n1/0", "1..4")
    b = runs("b", "n1/1")
    new = job("new", "1", priority=1, gpus=2)
    placed = place_all(view(nodes("4"), a, b, new), [request(a, 4), request(b), request(new)])
    assert spots(placed.allocations[a.id]) == "n1/0"
    assert placed.short == {a.id: 1}


def test_the_slots_of_a_growing_job_are_not_given_away() -> None:
    """The new job is larger and comes first, but a's GPUs are not offered."""
    a = runs("a", "n1/0 n1/1", "2..3")
    new = job("new", "1", gpus=4)
    placed = place_all(view(nodes("4 2"), a, new), [request(a, 3), request(new)])
    assert placed.short == {new.id: 0}
    assert len(placed.allocations[a.id]) == 3


def test_a_move_frees_space_for_a_request_that_failed_before() -> None:
    """b wants the very node that a leaves for the one that holds it all."""
    small, large = nodes("2 4")
    cluster = [replace(small, labels=frozenset({("rack", "1")})), large]
    a = runs("a", "n1/0 n1/1", "2..4")
    b = job("b", "1", gpus=2, node_labels=frozenset({("rack", "1")}))
    placed = place_all(view(cluster, a, b), [request(b), request(a, 4)], in_order=True)
    assert where(placed) == {"b": "n1/0,1", "a": "n2/0 n2/1 n2/2 n2/3"}


def test_the_slots_of_a_stopped_job_are_free() -> None:
    gone, new = runs("gone", "n1/0 n1/1"), job("new", "2")
    placed = place_all(view(nodes("2"), gone, new), [request(new)])
    assert where(placed) == {"new": "n1/0 n1/1"}


# -- draining -------------------------------------------------------------------------------------


def drained(cluster: list[Node], name: str) -> list[Node]:
    return [replace(node, is_draining=node.id == name) for node in cluster]


def test_a_draining_node_is_not_offered_and_its_jobs_move() -> None:
    a = runs("a", "n1/0 n2/0")
    new = job("new", "2")
    cluster = drained(nodes("4 4 4"), "n1")
    placed = place_all(view(cluster, a, new), [request(a), request(new)])
    assert n_by_node(placed.allocations[a.id]) == {"n2": 2}
    assert n_by_node(placed.allocations[new.id]) == {"n2": 2}


def test_workers_beside_the_draining_node_keep_their_slots() -> None:
    a = runs("a", "n1/0 n2/2 n2/3")
    placed = place_all(view(drained(nodes("4 4"), "n1"), a), [request(a)])
    assert spots(placed.allocations[a.id]) == "n2/0 n2/2 n2/3"


def test_a_job_on_a_draining_node_without_another_place_is_short() -> None:
    a = runs("a", "n1/0 n1/1")
    placed = place_all(view(drained(nodes("4 1"), "n1"), a), [request(a)])
    assert placed.short == {a.id: 1}
    assert not placed.allocations


# -- packing anew, and binding --------------------------------------------------------------------


def test_repacking_moves_only_jobs_that_must_move() -> None:
    """Packed as if new, a would go to n1 and b to n2; bound to where they are, both stay."""
    a, b = runs("a", "n2/0 n2/1 n2/2"), runs("b", "n1/0 n1/1")
    before = view(nodes("4 4"), a, b)
    placed = place_all(before, [request(a), request(b)], movable={a.id, b.id})
    assert placed.allocations == dict(before.planned)


def test_repacking_keeps_the_same_gpus() -> None:
    a, b = runs("a", "n1/3 n1/1"), runs("b", "n1/2")
    before = view(nodes("4"), a, b)
    placed = place_all(before, [request(a), request(b)], movable={a.id, b.id})
    assert placed.allocations == dict(before.planned)


def test_of_two_equal_moves_the_one_that_keeps_worker_0_is_made() -> None:
    """One of the two workers has to leave its node; it is not worker 0."""
    a = runs("a", "n2/0 n1/0")
    placed = place_all(view(nodes("2 2 2"), a), [request(a)], movable={a.id})
    assert spots(placed.allocations[a.id]) == "n2/0 n2/1"


# -- jobs that yield ------------------------------------------------------------------------------


def place_over(before: View, new: Job, *yielding: Job, units: int = 0) -> dict[str, str]:
    """Where all jobs are after `new` was placed; `yielding` jobs, the last one first, shrink to so
    many units if they must."""
    wishes = wishes_of(before, [request(each) for each in before.jobs.values() if each == new])
    by_id = {wish.job.id: wish for wish in wishes}
    victims = [replace(by_id[each.id], units=units, yields=True) for each in yielding]
    return where(place([by_id[new.id], *victims], capacity=before.free, planned=before.planned))


def test_jobs_yield_from_the_last_one_and_only_as_many_as_needed() -> None:
    a, b, c = runs("a", "n1/0"), runs("b", "n1/1"), runs("c", "n1/2")
    new = job("new", "2")
    before = view(nodes("3"), a, b, c, new)
    assert place_over(before, new, a, b, c) == {"a": "n1/0", "new": "n1/1 n1/2"}
    assert place_over(before, new, c, b, a) == {"c": "n1/2", "new": "n1/0 n1/1"}


def test_no_job_yields_while_free_gpus_suffice() -> None:
    a, new = runs("a", "n1/0"), job("new", "2")
    assert place_over(view(nodes("3"), a, new), new, a) == {"a": "n1/0", "new": "n1/1 n1/2"}


def test_jobs_that_yielded_in_vain_keep_their_slots() -> None:
    a, b, new = runs("a", "n1/0"), runs("b", "n2/0"), job("new", gpus=3)
    assert place_over(view(nodes("2 2"), a, b, new), new, a, b) == {"a": "n1/0", "b": "n2/0"}


def test_a_job_on_a_node_of_no_use_keeps_its_slots() -> None:
    """By number, one GPU is enough: b yields first, but new needs the node of a."""
    a, b, new = runs("a", "n1/0"), runs("b", "n2/0"), job("new", gpus=2)
    assert place_over(view(nodes("2 1"), a, b, new), new, a, b) == {"b": "n2/0", "new": "n1/0,1"}


def test_a_job_that_yields_a_part_keeps_its_first_units() -> None:
    a, new = runs("a", "n1/0 n1/1 n1/2", "1..3"), job("new", "2")
    before = view(nodes("3"), a, new)
    assert place_over(before, new, a, units=1) == {"a": "n1/0", "new": "n1/1 n1/2"}


def test_a_job_that_yields_a_part_shrinks_to_the_fewest_nodes_before_others_are_placed() -> None:
    """If `new` took the slot of the last unit, a would be left on two nodes."""
    a, new = runs("a", "n1/0 n1/1 n2/0 n1/2", "1..4"), job("new")
    assert place_over(view(nodes("3 1"), a, new), new, a, units=3) == {
        "a": "n1/0 n1/1 n1/2",
        "new": "n2/0",
    }
