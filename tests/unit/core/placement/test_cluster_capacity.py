"""The free capacity of all nodes, and the order in which nodes are offered."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from rota.core.model.allocation import Allocation
from rota.core.model.job import GpuShare
from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity, NodeCapacity, OverbookedError
from rota.core.placement.wish import Demand
from tests.unit.core.view_builders import CARD_BYTES, nodes, slots

WHOLE = Demand("A", gpus=1)
SHARE = Demand("A", share=GpuShare(0.25))


def names(rooms: Iterable[NodeCapacity]) -> list[str]:
    return [str(room.node.id) for room in rooms]


def taken(
    capacity: ClusterCapacity, allocation: Allocation, demand: Demand = WHOLE
) -> ClusterCapacity:
    capacity.take_all(allocation, demand)
    return capacity


def test_nodes_come_tightest_first_then_in_order() -> None:
    capacity = taken(ClusterCapacity(nodes("4 2 4 1")), slots("n3/0 n3/1 n3/2"))
    assert names(capacity.by_fit(WHOLE)) == ["n3", "n4", "n2", "n1"]
    assert names(capacity.by_fit(WHOLE, 2)) == ["n2", "n1"]
    assert names(capacity.by_size(WHOLE))[:2] == ["n1", "n2"]


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
    capacity.take_all(slots("n4/0", CARD_BYTES // 2), SHARE)
    capacity.take_all(slots("n2/0", CARD_BYTES * 3 // 4), SHARE)
    capacity.take_all(slots("n3/0", CARD_BYTES), SHARE)
    assert names(capacity.by_card(SHARE)) == ["n2", "n4", "n1", "n2"]
    assert capacity.free_gpus("A") == pytest.approx(2.75)
    capacity.give(slots("n2/0", CARD_BYTES * 3 // 4), SHARE)
    assert names(capacity.by_card(SHARE)) == ["n4", "n1", "n2"]


def test_all_or_none_is_taken() -> None:
    capacity = taken(ClusterCapacity(nodes("2 2")), slots("n2/0"))
    assert not capacity.try_take_all(slots("n1/0 n2/0"), WHOLE)
    assert capacity.n_free("A") == 3
    assert not capacity.try_take_all(slots("n9/0"), WHOLE)
    assert capacity.try_take_all(slots("n1/0 n2/1"), WHOLE)


def test_taking_on_an_unknown_node_raises_and_giving_back_does_not() -> None:
    capacity = ClusterCapacity(nodes("1"))
    with pytest.raises(OverbookedError):
        capacity.take(slots("n9/0")[0], WHOLE)
    capacity.give(slots("n9/0"), WHOLE)


def test_a_copy_and_its_original_do_not_see_each_others_changes() -> None:
    first = taken(ClusterCapacity(nodes("2 2")), slots("n1/0"))
    second = first.copy()
    second.take_all(slots("n1/1"), WHOLE)
    first.take_all(slots("n2/0", CARD_BYTES // 2), SHARE)
    third = second.copy()
    third.give(slots("n1/0"), WHOLE)
    assert [c.n_free("A") for c in (first, second, third)] == [2, 2, 3]
    assert [c[NodeId("n1")].fits(WHOLE) for c in (first, second, third)] == [1, 0, 1]
    assert [c[NodeId("n2")].fits(SHARE) for c in (first, second, third)] == [6, 8, 8]
    assert names(first.by_card(SHARE)) == ["n2", "n1", "n2"]
    assert names(second.by_card(SHARE)) == ["n2"]


def test_a_share_that_cannot_be_taken_changes_nothing() -> None:
    capacity = ClusterCapacity(nodes("1"))
    capacity.take_all(slots("n1/0", CARD_BYTES // 2), SHARE)
    with pytest.raises(OverbookedError):
        capacity.take(slots("n1/0", CARD_BYTES)[0], SHARE)
    capacity.give(slots("n1/0", CARD_BYTES // 2), SHARE)
    assert capacity.n_free("A") == 1


def test_a_type_with_gpus_of_two_sizes_counts_the_smaller() -> None:
    small, large = nodes("1 1")
    large = replace(large, gpus=(replace(large.gpus[0], memory_bytes=2 * CARD_BYTES),))
    assert ClusterCapacity([large, small]).card_bytes == {"A": CARD_BYTES}
