"""The free capacity of one node."""

import pytest

from rota.core.model.allocation import Slot
from rota.core.model.job import GpuShare
from rota.core.model.units import GIB
from rota.core.placement.capacity import NodeCapacity, OverbookedError
from rota.core.placement.wish import Demand
from tests.unit.core.view_builders import CARD_BYTES, nodes, slots

WHOLE = Demand("A", gpus=1)
HALF = Demand("A", share=GpuShare(0.5))
HALF_OF_0 = slots("n1/0", CARD_BYTES // 2)[0]


def room(size: str = "4", **limits: float) -> NodeCapacity:
    return NodeCapacity(nodes(size, **limits)[0], 0)


def test_what_is_taken_is_not_free_and_what_is_given_back_is() -> None:
    here = room()
    here.take(slots("n1/1,2")[0], Demand("A", gpus=2))
    assert here.free == {"A": [0, 3]}
    here.give(slots("n1/1,2")[0], Demand("A", gpus=2))
    assert here.free == {"A": [0, 1, 2, 3]}


@pytest.mark.parametrize("taken", ["n1/0", "n1/0,1", "n1/7"])
def test_a_slot_is_not_taken_twice_or_from_a_missing_gpu(taken: str) -> None:
    here = room("2")
    here.take(slots("n1/0")[0], WHOLE)
    slot = slots(taken)[0]
    assert not here.has_free(slot)
    with pytest.raises(OverbookedError):
        here.take(slot, Demand("A", gpus=len(slot.gpus)))


def test_a_shared_gpu_is_not_free_and_a_whole_one_is_not_shared() -> None:
    here = room("2")
    here.take(HALF_OF_0, HALF)
    assert not here.has_free(slots("n1/0")[0])
    here.take(slots("n1/1")[0], WHOLE)
    assert not here.has_free(slots("n1/1", GIB)[0])
    assert here.fits(HALF) == 1


def test_a_gpu_without_sharers_is_whole_again() -> None:
    here = room("1")
    here.take(HALF_OF_0, HALF)
    here.take(HALF_OF_0, HALF)
    assert here.fits(HALF) == 0
    here.give(HALF_OF_0, HALF)
    assert here.fits(WHOLE) == 0
    here.give(HALF_OF_0, HALF)
    assert here.fits(WHOLE) == 1


def test_no_share_is_larger_than_its_gpu() -> None:
    here = room("1")
    assert not here.has_free(slots("n1/0", CARD_BYTES + 1)[0])
    assert here.fits(Demand("A", share=GpuShare(memory_bytes=CARD_BYTES + 1))) == 0


def test_the_next_share_goes_to_the_fullest_gpu_that_fits() -> None:
    here = room("3")
    here.take(slots("n1/1", CARD_BYTES // 4)[0], HALF)
    here.take(slots("n1/2", CARD_BYTES * 3 // 4)[0], HALF)
    assert here.choose(HALF).gpus == (1,)
    assert here.choose(Demand("A", share=GpuShare(0.25))).gpus == (2,)
    assert here.choose(Demand("A", share=GpuShare(0.8))).gpus == (0,)


def test_cpus_memory_and_workers_run_out() -> None:
    here = room("4", cpus=4.0, memory_bytes=8.0, max_workers=3.0)
    assert here.fits(Demand("A", gpus=1, cpus=1.5)) == 2
    assert here.fits(Demand("A", gpus=1, memory_bytes=3)) == 2
    assert here.fits(WHOLE) == 3
    with pytest.raises(OverbookedError):
        here.take(slots("n1/0")[0], Demand("A", gpus=1, cpus=5.0))


def test_a_demand_for_nothing_is_bounded_by_workers_only() -> None:
    assert room("0", max_workers=2.0).fits(Demand()) == 2
    assert room("0").fits(Demand()) > 1000
    assert room("0").choose(Demand()) == Slot(room().node.id)


def test_nodes_with_equal_capacity_have_equal_shapes() -> None:
    one, other = room(cpus=8.0), room(cpus=8.0)
    for _ in range(30):
        one.take(slots("n1/2")[0], Demand("A", gpus=1, cpus=0.1))
        one.give(slots("n1/2")[0], Demand("A", gpus=1, cpus=0.1))
    assert one.shape == other.shape
    other.take(slots("n1/2")[0], WHOLE)
    assert one.shape != other.shape


def test_a_copy_is_independent() -> None:
    here = room("2")
    twin = here.copy()
    twin.take(HALF_OF_0, HALF)
    assert (here.fits(HALF), twin.fits(HALF)) == (4, 3)
