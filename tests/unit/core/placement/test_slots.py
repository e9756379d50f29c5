"""How the workers of one job are spread over nodes and assigned to slots."""

import pytest

from rota.core.model.node import NodeId
from rota.core.placement.capacity import ClusterCapacity
from rota.core.placement.slots import assign_slots, choose_nodes, n_fitting
from rota.core.placement.wish import Demand
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
    assert choose_nodes(ClusterCapacity(nodes(cluster)), WHOLE, units=workers) == chunks


def test_a_node_to_avoid_is_not_used_at_all() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    n1 = NodeId("n1")
    assert choose_nodes(capacity, WHOLE, units=3, avoid=[n1]) == [("n2", 3)]
    assert choose_nodes(capacity, WHOLE, units=5, avoid=[n1]) is None


def test_a_crowded_node_is_used_only_to_save_nodes() -> None:
    crowded = [NodeId("n1")]
    assert choose_nodes(ClusterCapacity(nodes("3 2 2")), WHOLE, units=4, crowded=crowded) == [
        ("n2", 2),
        ("n3", 2),
    ]
    assert choose_nodes(ClusterCapacity(nodes("3 1 1 1")), WHOLE, units=4, crowded=crowded) == [
        ("n1", 3),
        ("n2", 1),
    ]


def test_all_that_fits_is_counted() -> None:
    assert n_fitting(ClusterCapacity(nodes("3 5 1")), Demand("A", gpus=2)) == 3


# -- slots ----------------------------------------------------------------------------------------


def chunks(**counts: int) -> list[tuple[NodeId, int]]:
    return [(NodeId(node), count) for node, count in counts.items()]


def test_a_worker_whose_slot_is_free_keeps_slot_and_number() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    found = assign_slots(capacity, WHOLE, chunks=chunks(n1=2, n2=1), before=slots("n2/3 n1/2"))
    assert spots(found) == "n2/3 n1/2 n1/0"


def test_a_worker_whose_slot_is_taken_stays_on_its_node() -> None:
    capacity = ClusterCapacity(nodes("4 4"))
    capacity.take(slots("n2/3"), WHOLE)
    found = assign_slots(capacity, WHOLE, chunks=chunks(n1=1, n2=1), before=slots("n2/3 n1/2"))
    assert spots(found) == "n2/0 n1/2"


def test_a_worker_whose_node_has_no_place_takes_the_next_that_is_left() -> None:
    capacity = ClusterCapacity(nodes("4 4 4"))
    before = slots("n1/0 n3/1 n1/1")
    found = assign_slots(capacity, WHOLE, chunks=chunks(n2=2, n1=1), before=before)
    assert spots(found) == "n1/0 n2/0 n2/1"
