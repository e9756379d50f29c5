"""How workers of one job are spread over nodes, seated there, and bound to equal nodes."""

import pytest

from rota.core.binding import Seating, bind
from rota.core.capacity import Capacity
from rota.core.demand import Demand
from rota.core.model import JobId, NodeId
from rota.core.packing import n_fitting, spread
from rota.core.seating import Party, seat, seat_all
from tests.unit.core.clusters import nodes, slots, spots

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
    assert spread(Capacity(nodes(cluster)), WHOLE, workers=workers) == chunks


def test_a_node_to_avoid_is_not_used_at_all() -> None:
    capacity = Capacity(nodes("4 4"))
    n1 = NodeId("n1")
    assert spread(capacity, WHOLE, workers=3, avoid=[n1]) == [("n2", 3)]
    assert spread(capacity, WHOLE, workers=5, avoid=[n1]) is None


def test_a_crowded_node_is_used_only_to_save_nodes() -> None:
    crowded = [NodeId("n1")]
    assert spread(Capacity(nodes("3 2 2")), WHOLE, workers=4, crowded=crowded) == [
        ("n2", 2),
        ("n3", 2),
    ]
    assert spread(Capacity(nodes("3 1 1 1")), WHOLE, workers=4, crowded=crowded) == [
        ("n1", 3),
        ("n2", 1),
    ]


def test_all_that_fits_is_counted() -> None:
    assert n_fitting(Capacity(nodes("3 5 1")), Demand("A", gpus=2)) == 3


# -- seats ----------------------------------------------------------------------------------------


def party(name: str, before: str = "", demand: Demand = WHOLE) -> Party:
    return Party(JobId(name), demand, slots(before))


def chunks(**counts: int) -> list[tuple[NodeId, int]]:
    return [(NodeId(node), count) for node, count in counts.items()]


def test_a_worker_whose_slot_is_free_keeps_slot_and_number() -> None:
    capacity = Capacity(nodes("4 4"))
    seats = seat(capacity, party("a", "n2/3 n1/2"), chunks=chunks(n1=2, n2=1))
    assert spots(seats) == "n2/3 n1/2 n1/0"


def test_a_worker_whose_slot_is_taken_stays_on_its_node() -> None:
    capacity = Capacity(nodes("4 4"))
    capacity.take_all(slots("n2/3"), WHOLE)
    assert spots(seat(capacity, party("a", "n2/3 n1/2"), chunks=chunks(n1=1, n2=1))) == "n2/0 n1/2"


def test_a_worker_whose_node_has_no_place_takes_the_next_that_is_left() -> None:
    capacity = Capacity(nodes("4 4 4"))
    seats = seat(capacity, party("a", "n1/0 n3/1 n1/1"), chunks=chunks(n2=2, n1=1))
    assert spots(seats) == "n1/0 n2/0 n2/1"


def test_nobody_takes_a_seat_that_another_party_could_keep() -> None:
    capacity = Capacity(nodes("4"))
    parties = [(party("new"), chunks(n1=2)), (party("old", "n1/0 n1/2"), chunks(n1=2))]
    assert [spots(seats) for seats in seat_all(capacity, parties)] == ["n1/1 n1/3", "n1/0 n1/2"]


# -- binding --------------------------------------------------------------------------------------


def seating(
    capacity: Capacity, of: Party, where: list[tuple[NodeId, int]], *, may_rebind: bool = True
) -> Seating:
    return Seating(of, where, seat(capacity, of, chunks=where), may_rebind)


def test_equal_nodes_are_exchanged_so_that_most_workers_stay() -> None:
    capacity = Capacity(nodes("4 4 4"))
    a = seating(capacity, party("a", "n3/0 n3/1 n3/2"), chunks(n1=3))
    b = seating(capacity, party("b", "n1/1 n1/2"), chunks(n2=2))
    bound = bind(capacity, [a, b])
    assert spots(bound[JobId("a")]) == "n3/0 n3/1 n3/2"
    assert spots(bound[JobId("b")]) == "n1/1 n1/2"


def test_nodes_of_other_sizes_are_not_exchanged() -> None:
    """By overlap alone, eight workers would go to the node of two."""
    capacity = Capacity(nodes("2 8"))
    big = seating(capacity, party("big", "n1/0 n1/1"), chunks(n2=8))
    assert {slot.node for slot in bind(capacity, [big])[JobId("big")]} == {"n2"}


def test_who_may_not_be_rebound_stays_where_it_was_packed() -> None:
    capacity = Capacity(nodes("2 2"))
    a = seating(capacity, party("a", "n2/0"), chunks(n1=1), may_rebind=False)
    assert spots(bind(capacity, [a])[JobId("a")]) == "n1/0"


def test_a_job_of_several_nodes_is_not_rebound_beside_another() -> None:
    """n1 would save a move, but holds a part of another job of several nodes."""
    capacity = Capacity(nodes("2 2 2"))
    a = seating(capacity, party("a", "n1/0 n1/1"), chunks(n2=2, n3=1))
    bound = bind(capacity, [a], crowded={NodeId("n1")})
    assert {slot.node for slot in bound[JobId("a")]} == {"n2", "n3"}
    assert spots(bind(capacity, [a])[JobId("a")]).startswith("n1/0 n1/1 ")
