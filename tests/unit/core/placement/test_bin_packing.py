"""How the workers of one job are spread over nodes, assigned to slots, and matched to equal
nodes."""

import pytest

from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.core.placement.bin_packing import choose_nodes, n_fitting
from rota.core.placement.cluster_capacity import ClusterCapacity
from rota.core.placement.node_matching import SlotAssignment, match_nodes
from rota.core.placement.slot_assignment import SlotRequest, assign_slots, assign_slots_to_all
from rota.core.placement.worker_demand import Demand
from tests.unit.core.view_builders import nodes, slots, spots

WHOLE = Demand("A", gpus=1)


@pytest.mark.parametrize(
    ("cluster", "workers", "chunks"),
    [
        ("4 8 6", 5, [("n3", 5)]),
        ("4 8 6", 9, [("n2", 8), ("n1", 1)]),
        ("4 8 6", 14, [("n2", 8), ("n3", 6)]),
        ("4 4 4", 6, [("n1", 4), ("n2", 2)]),
        ("4 4 2 3", 6, [("n1", 4), ("n3", 2)]),
        ("4 4", 8, [("n1", 4), ("n2", 4)]),
        ("4 4", 9, None),
    ],
)
def test_fewest_nodes_then_the_tightest(
    cluster: str, workers: int, chunks: list[tuple[str, int]] | None
) -> None:
    assert choose_nodes(ClusterCapacity(nodes(cluster)), WHOLE, workers=workers) == chunks


def test_a_node_to_avoid_is_not_used_at_all() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    n1 = NodeId("n1")
    assert choose_nodes(capacity, WHOLE, workers=3, avoid=[n1]) == [("n2", 3)]
    assert choose_nodes(capacity, WHOLE, workers=5, avoid=[n1]) is None


def test_a_crowded_node_is_used_only_to_save_nodes() -> None:
    crowded = [NodeId("n1")]
    assert choose_nodes(ClusterCapacity(nodes("3 2 2")), WHOLE, workers=4, crowded=crowded) == [
        ("n2", 2),
        ("n3", 2),
    ]
    assert choose_nodes(ClusterCapacity(nodes("3 1 1 1")), WHOLE, workers=4, crowded=crowded) == [
        ("n1", 3),
        ("n2", 1),
    ]


def test_all_that_fits_is_counted() -> None:
    assert n_fitting(ClusterCapacity(nodes("3 5 1")), Demand("A", gpus=2)) == 3


# -- seats ----------------------------------------------------------------------------------------


def slot_request(name: str, before: str = "", demand: Demand = WHOLE) -> SlotRequest:
    return SlotRequest(JobId(name), demand, slots(before))


def chunks(**counts: int) -> list[tuple[NodeId, int]]:
    return [(NodeId(node), count) for node, count in counts.items()]


def test_a_worker_whose_slot_is_free_keeps_slot_and_number() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    seats = assign_slots(capacity, slot_request("a", "n2/3 n1/2"), chunks=chunks(n1=2, n2=1))
    assert spots(seats) == "n2/3 n1/2 n1/0"


def test_a_worker_whose_slot_is_taken_stays_on_its_node() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    capacity.take_all(slots("n2/3"), WHOLE)
    assert (
        spots(assign_slots(capacity, slot_request("a", "n2/3 n1/2"), chunks=chunks(n1=1, n2=1)))
        == "n2/0 n1/2"
    )


def test_a_worker_whose_node_has_no_place_takes_the_next_that_is_left() -> None:
    capacity = ClusterCapacity(nodes("4 4 4"))
    seats = assign_slots(capacity, slot_request("a", "n1/0 n3/1 n1/1"), chunks=chunks(n2=2, n1=1))
    assert spots(seats) == "n1/0 n2/0 n2/1"


def test_no_job_takes_a_slot_that_another_job_could_keep() -> None:
    capacity = ClusterCapacity(nodes("4"))
    slot_requests = [
        (slot_request("new"), chunks(n1=2)),
        (slot_request("old", "n1/0 n1/2"), chunks(n1=2)),
    ]
    assert [spots(seats) for seats in assign_slots_to_all(capacity, slot_requests)] == [
        "n1/1 n1/3",
        "n1/0 n1/2",
    ]


# -- binding --------------------------------------------------------------------------------------


def assignment(
    capacity: ClusterCapacity,
    of: SlotRequest,
    where: list[tuple[NodeId, int]],
    *,
    may_rebind: bool = True,
) -> SlotAssignment:
    return SlotAssignment(of, where, assign_slots(capacity, of, chunks=where), may_rebind)


def test_equal_nodes_are_exchanged_so_that_most_workers_stay() -> None:
    capacity = ClusterCapacity(nodes("4 4 4"))
    a = assignment(capacity, slot_request("a", "n3/0 n3/1 n3/2"), chunks(n1=3))
    b = assignment(capacity, slot_request("b", "n1/1 n1/2"), chunks(n2=2))
    bound = match_nodes(capacity, [a, b])
    assert spots(bound[JobId("a")]) == "n3/0 n3/1 n3/2"
    assert spots(bound[JobId("b")]) == "n1/1 n1/2"


def test_nodes_of_other_sizes_are_not_exchanged() -> None:
    """By overlap alone, eight workers would go to the node of two."""
    capacity = ClusterCapacity(nodes("2 8"))
    big = assignment(capacity, slot_request("big", "n1/0 n1/1"), chunks(n2=8))
    assert {slot.node for slot in match_nodes(capacity, [big])[JobId("big")]} == {"n2"}


def test_a_job_that_may_not_be_rebound_stays_as_packed() -> None:
    capacity = ClusterCapacity(nodes("2 2"))
    a = assignment(capacity, slot_request("a", "n2/0"), chunks(n1=1), may_rebind=False)
    assert spots(match_nodes(capacity, [a])[JobId("a")]) == "n1/0"


def test_a_job_of_several_nodes_is_not_rebound_beside_another() -> None:
    """n1 would save a move, but holds a part of another job of several nodes."""
    capacity = ClusterCapacity(nodes("2 2 2"))
    a = assignment(capacity, slot_request("a", "n1/0 n1/1"), chunks(n2=2, n3=1))
    bound = match_nodes(capacity, [a], crowded={NodeId("n1")})
    assert {slot.node for slot in bound[JobId("a")]} == {"n2", "n3"}
    assert spots(match_nodes(capacity, [a])[JobId("a")]).startswith("n1/0 n1/1 ")
