"""Jobs with one worker on each node: their GPUs, nodes, CPUs and sizes in whole rounds."""

from typing import Any

import pytest

from rota.core.explain.reasons import Fragmented
from rota.core.model.job import GpuShare, Job, Mode, Processes
from rota.core.model.units import GIB
from rota.core.scheduling.plan import Plan, check
from rota.core.scheduling.round import decide
from rota.core.scheduling.view import Rules
from rota.policies.registry import parse
from tests.unit.core.view_builders import CARD_BYTES, job, nodes, runs, slots, spots, view

SHARE = GpuShare(memory_bytes=6 * GIB)


def per_node(name: str, sizes: str = "1", **changes: Any) -> Job:
    return job(name, sizes, processes=Processes.PER_NODE, **changes)


def runs_per_node(name: str, where: str, sizes: str, **changes: Any) -> Job:
    return runs(name, where, sizes, processes=Processes.PER_NODE, gpus=1, **changes)


def held(plan: Plan) -> dict[str, str]:
    assert not plan.violations
    return {str(job_id): spots(allocation) for job_id, allocation in plan.allocations.items()}


ELASTIC = parse("elastic-fifo")


def test_one_worker_on_each_node_with_all_gpus_there() -> None:
    a = per_node("a", "1..6")
    assert held(decide(view(nodes("4 4"), a), ELASTIC)) == {"a": "n1/0,1,2,3 n2/0,1"}


def test_a_job_for_one_node_is_not_larger_than_a_node() -> None:
    a = per_node("a", "1..6", max_nodes=1)
    assert held(decide(view(nodes("2 4"), a), ELASTIC)) == {"a": "n2/0,1,2,3"}


def test_a_job_for_one_node_takes_what_fits_there() -> None:
    busy = [runs("b", "n1/0 n1/1"), runs("c", "n2/0")]
    a = per_node("a", "1..4", max_nodes=1)
    before = view(nodes("4 4"), *busy, a, rules=Rules(is_guarded=False))
    assert held(decide(before, ELASTIC))["a"] == "n2/1,2,3"


def test_a_job_for_one_node_waits_until_one_node_has_its_gpus() -> None:
    busy = [runs("b", "n1/0"), runs("c", "n2/0")]
    a = per_node("a", "2", max_nodes=1)
    plan = decide(view(nodes("2 2"), *busy, a, rules=Rules(is_guarded=False)), parse("fifo"))
    assert "a" not in held(plan)
    assert plan.waits == {a.id: Fragmented(2, 1)}


def test_room_for_a_job_for_one_node_is_made_by_a_move() -> None:
    busy = [runs("b", "n1/0", priority=-1), runs("c", "n2/0", priority=-1)]
    a = per_node("a", "2", max_nodes=1)
    found = held(decide(view(nodes("2 2"), *busy, a), parse("fifo")))
    assert found["a"] in ("n1/0,1", "n2/0,1")
    assert len(found) == 3


def test_cpus_and_memory_count_once_for_each_worker() -> None:
    cluster = nodes("4", cpus=8.0, memory_bytes=8 * GIB, max_workers=1)
    a = per_node("a", "4", cpus=8.0, memory_bytes=8 * GIB)
    assert held(decide(view(cluster, a), ELASTIC)) == {"a": "n1/0,1,2,3"}
    b = job("b", "2", cpus=8.0)
    assert held(decide(view(cluster, b), ELASTIC)) == {}


def test_a_restart_job_grows_and_shrinks_as_one_worker() -> None:
    a = runs_per_node("a", "n1/0,1", "1..4", mode=Mode.RESTART, cpus=8.0)
    cluster = nodes("4", cpus=8.0)
    assert held(decide(view(cluster, a), ELASTIC)) == {"a": "n1/0,1,2,3"}
    large = runs_per_node("a", "n1/0,1,2,3", "1..4", mode=Mode.RESTART)
    new = job("b", "1..2")
    assert held(decide(view(nodes("4"), large, new), ELASTIC)) == {"a": "n1/0,1", "b": "n1/2 n1/3"}


def test_a_fixed_job_keeps_the_size_that_it_started_with() -> None:
    new = per_node("a", "1..4", mode=Mode.FIXED, max_nodes=1)
    assert held(decide(view(nodes("4"), new), ELASTIC)) == {"a": "n1/0,1,2,3"}
    small = runs_per_node("a", "n1/0,1", "1..4", mode=Mode.FIXED)
    assert held(decide(view(nodes("4"), small), ELASTIC)) == {"a": "n1/0,1"}
    large = runs_per_node("a", "n1/0,1,2,3", "1..4", mode=Mode.FIXED)
    plan = decide(view(nodes("4"), large, job("b")), ELASTIC)
    assert held(plan) == {"a": "n1/0,1,2,3"}


@pytest.mark.parametrize("policy", ["elastic-fifo", "elastic-tiresias", "elastic-srjf", "afs-l"])
def test_a_job_starts_with_the_size_that_its_user_chose(policy: str) -> None:
    new = per_node("a", "1..4@2", start_units=2, max_nodes=1)
    assert held(decide(view(nodes("4"), new), parse(policy))) == {"a": "n1/0,1"}
    running = runs_per_node("a", "n1/0,1", "1..4@2", start_units=2)
    assert held(decide(view(nodes("4"), running), parse(policy))) == {"a": "n1/0,1,2,3"}


def test_a_share_is_reserved_on_each_of_several_gpus() -> None:
    shares = slots("n1/1", 6 * GIB)
    other = runs("b", shares, gpus=0, share=SHARE)
    a = per_node("a", "3", gpus=0, share=SHARE, max_nodes=1)
    plan = decide(view(nodes("4"), other, a), ELASTIC)
    assert not plan.violations
    (slot,) = plan.allocations[a.id]
    assert (slot.gpus, slot.share_bytes) == ((0, 1, 2), 6 * GIB)
    assert slot.fraction == pytest.approx(6 * GIB / CARD_BYTES)


def test_a_share_of_more_gpus_than_a_node_has_never_fits() -> None:
    a = per_node("a", "3", gpus=0, share=GpuShare(memory_bytes=GIB), max_nodes=1)
    plan = decide(view(nodes("2 2"), a), ELASTIC)
    assert held(plan) == {}
    assert "can never run" in str(plan.waits[a.id])


def test_a_plan_with_two_workers_on_one_node_is_refused() -> None:
    a = per_node("a", "2", max_nodes=1)
    before = view(nodes("2 2"), a)
    together, apart = slots("n1/0 n1/1"), slots("n1/0 n2/0")
    wrong = check(Plan({a.id: together}, {a.id: "A"}), before)
    assert wrong == ("a is planned with several workers on one node",)
    wrong = check(Plan({a.id: apart}, {a.id: "A"}), before)
    assert wrong == ("a is planned on 2 nodes, not on at most 1",)
