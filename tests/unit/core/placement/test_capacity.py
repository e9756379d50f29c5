"""The free capacity of one node and of all nodes, and the order in which nodes are offered."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from rota.core.model.allocation import Allocation, Slot
from rota.core.model.job import GpuShare
from rota.core.model.node import NodeId
from rota.core.model.units import GIB
from rota.core.placement.capacity import ClusterCapacity, NodeCapacity, OverbookedError
from rota.core.placement.wish import Demand
from tests.unit.core.view_builders import CARD_BYTES, nodes, slots

WHOLE = Demand("A", gpus=1)
SHARE = Demand("A", share=GpuShare(0.25))
HALF = Demand("A", share=GpuShare(0.5))
HALF_OF_0 = slots("n1/0", CARD_BYTES // 2)[0]


def room(size: str = "4", **limits: float) -> NodeCapacity:
    return NodeCapacity(nodes(size, **limits)[0], 0)


def after_taking(here: NodeCapacity, *slots_taken: Slot, demand: Demand = WHOLE) -> NodeCapacity:
    for slot in slots_taken:
        here = here.changed(slot, demand, sign=-1)
    return here


def test_what_is_taken_is_not_free_and_what_is_given_back_is() -> None:
    two = Demand("A", gpus=2)
    here = after_taking(room(), slots("n1/1,2")[0], demand=two)
    assert (here.free("A"), here.n_free("A")) == ([0, 3], 2)
    here = here.changed(slots("n1/1,2")[0], two, sign=1)
    assert (here.free("A"), here.n_free("A")) == ([0, 1, 2, 3], 4)


@pytest.mark.parametrize("wanted", ["n1/0", "n1/0,1", "n1/7"])
def test_a_slot_is_not_taken_twice_or_from_a_missing_gpu(wanted: str) -> None:
    here = after_taking(room("2"), slots("n1/0")[0])
    slot = slots(wanted)[0]
    assert not here.has_free(slot, Demand("A", gpus=len(slot.gpus)))


def test_a_gpu_of_another_type_is_not_taken() -> None:
    assert not room("2").has_free(slots("n1/0")[0], Demand("B", gpus=1))


def test_a_shared_gpu_is_not_free_and_a_whole_one_is_not_shared() -> None:
    here = after_taking(room("2"), HALF_OF_0, demand=HALF)
    assert not here.has_free(slots("n1/0")[0], WHOLE)
    here = after_taking(here, slots("n1/1")[0])
    assert not here.has_free(slots("n1/1", GIB)[0], HALF)
    assert here.fits(HALF) == 1


def test_a_gpu_without_sharers_is_whole_again() -> None:
    here = after_taking(room("1"), HALF_OF_0, HALF_OF_0, demand=HALF)
    assert here.fits(HALF) == 0
    here = here.changed(HALF_OF_0, HALF, sign=1)
    assert here.fits(WHOLE) == 0
    here = here.changed(HALF_OF_0, HALF, sign=1)
    assert here.fits(WHOLE) == 1


def test_no_share_is_larger_than_its_gpu() -> None:
    here = room("1")
    assert not here.has_free(slots("n1/0", CARD_BYTES + 1)[0], HALF)
    assert here.fits(Demand("A", share=GpuShare(memory_bytes=CARD_BYTES + 1))) == 0


def test_the_next_share_goes_to_the_fullest_gpu_that_fits() -> None:
    quarter, most = slots("n1/1", CARD_BYTES // 4)[0], slots("n1/2", CARD_BYTES * 3 // 4)[0]
    here = after_taking(room("3"), quarter, most, demand=HALF)
    assert here.choose(HALF).gpus == (1,)
    assert here.choose(Demand("A", share=GpuShare(0.25))).gpus == (2,)
    assert here.choose(Demand("A", share=GpuShare(0.8))).gpus == (0,)


def test_cpus_memory_and_workers_run_out() -> None:
    here = room("4", cpus=4.0, memory_bytes=8.0, max_workers=3.0)
    assert here.fits(Demand("A", gpus=1, cpus=1.5)) == 2
    assert here.fits(Demand("A", gpus=1, memory_bytes=3)) == 2
    assert here.fits(WHOLE) == 3
    assert not here.has_free(slots("n1/0")[0], Demand("A", gpus=1, cpus=5.0))


def test_a_demand_for_nothing_is_bounded_by_workers_only() -> None:
    assert room("0", max_workers=2.0).fits(Demand()) == 2
    assert room("0").fits(Demand()) > 1000
    assert room("0").choose(Demand()) == Slot(room().node.id)


def test_a_change_makes_a_new_value() -> None:
    here = room("2")
    after = after_taking(here, HALF_OF_0, demand=HALF)
    assert (here.fits(HALF), after.fits(HALF)) == (4, 3)


def test_a_gpu_of_unknown_memory_is_taken_only_once() -> None:
    [node] = nodes("1")
    unknown = replace(node, gpus=(replace(node.gpus[0], memory_bytes=0),))
    here = after_taking(NodeCapacity(unknown, 0), slots("n1/0")[0])
    assert (here.n_free("A"), here.free("A"), here.fits(WHOLE)) == (0, [], 0)
    assert not here.has_free(slots("n1/0")[0], WHOLE)


def names(rooms: Iterable[NodeCapacity]) -> list[str]:
    return [str(room.node.id) for room in rooms]


def taken(
    capacity: ClusterCapacity, allocation: Allocation, demand: Demand = WHOLE
) -> ClusterCapacity:
    capacity.take(allocation, demand)
    return capacity


def test_nodes_come_tightest_first_then_in_order() -> None:
    capacity = taken(ClusterCapacity(nodes("4 2 4 1")), slots("n3/0 n3/1 n3/2"))
    assert names(capacity.by_fit(WHOLE)) == ["n3", "n4", "n2", "n1"]
    assert names(capacity.by_fit(WHOLE, 2)) == ["n2", "n1"]


def test_only_nodes_with_the_gpu_type_are_offered() -> None:
    capacity = ClusterCapacity(nodes("4 2:B"))
    assert names(capacity.by_fit(Demand("B", gpus=1))) == ["n2"]
    assert capacity.gpus == {"A": 4, "B": 2}


def test_a_draining_node_is_not_offered_but_what_it_held_can_be_given_back() -> None:
    first, second = nodes("2 2")
    capacity = taken(ClusterCapacity([replace(first, is_draining=True), second]), slots("n1/0"))
    assert names(capacity.by_fit(WHOLE)) == ["n2"]
    capacity.give(slots("n1/0"), WHOLE)
    assert capacity.n_free("A") == 2
    assert capacity.gpus == {"A": 2}


def test_nodes_with_the_fullest_shared_gpu_come_first() -> None:
    capacity = ClusterCapacity(nodes("1 2 1 1"))
    capacity.take(slots("n4/0", CARD_BYTES // 2), SHARE)
    capacity.take(slots("n2/0", CARD_BYTES * 3 // 4), SHARE)
    capacity.take(slots("n3/0", CARD_BYTES), SHARE)
    assert names(capacity.by_fit(SHARE)) == ["n2", "n4", "n1", "n2"]
    assert capacity.free_gpus("A") == pytest.approx(2.75)
    capacity.give(slots("n2/0", CARD_BYTES * 3 // 4), SHARE)
    assert names(capacity.by_fit(SHARE)) == ["n4", "n1", "n2"]


def test_all_or_none_is_taken() -> None:
    capacity = taken(ClusterCapacity(nodes("2 2")), slots("n2/0"))
    assert not capacity.try_take(slots("n1/0 n2/0"), WHOLE)
    assert capacity.n_free("A") == 3
    assert not capacity.try_take(slots("n9/0"), WHOLE)
    assert capacity.try_take(slots("n1/0 n2/1"), WHOLE)


def test_taking_on_an_unknown_node_raises_and_giving_back_does_not() -> None:
    capacity = ClusterCapacity(nodes("1"))
    with pytest.raises(OverbookedError):
        capacity.take(slots("n9/0"), WHOLE)
    capacity.give(slots("n9/0"), WHOLE)


def test_a_copy_and_its_original_do_not_see_each_others_changes() -> None:
    first = taken(ClusterCapacity(nodes("2 2")), slots("n1/0"))
    second = first.copy()
    second.take(slots("n1/1"), WHOLE)
    first.take(slots("n2/0", CARD_BYTES // 2), SHARE)
    third = second.copy()
    third.give(slots("n1/0"), WHOLE)
    assert [c.n_free("A") for c in (first, second, third)] == [2, 2, 3]
    assert [c[NodeId("n1")].fits(WHOLE) for c in (first, second, third)] == [1, 0, 1]
    assert [c[NodeId("n2")].fits(SHARE) for c in (first, second, third)] == [6, 8, 8]
    assert names(first.by_fit(SHARE)) == ["n2", "n1", "n2"]
    assert names(second.by_fit(SHARE)) == ["n2"]


def test_a_share_that_cannot_be_taken_changes_nothing() -> None:
    capacity = ClusterCapacity(nodes("1"))
    capacity.take(slots("n1/0", CARD_BYTES // 2), SHARE)
    with pytest.raises(OverbookedError):
        capacity.take(slots("n1/0", CARD_BYTES), SHARE)
    capacity.give(slots("n1/0", CARD_BYTES // 2), SHARE)
    assert capacity.n_free("A") == 1


def test_a_type_with_gpus_of_two_sizes_counts_the_smaller() -> None:
    small, large = nodes("1 1")
    large = replace(large, gpus=(replace(large.gpus[0], memory_bytes=2 * CARD_BYTES),))
    assert ClusterCapacity([large, small]).card_bytes == {"A": CARD_BYTES}
