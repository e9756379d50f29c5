"""Nodes that reject a job: the job goes elsewhere, or waits and shows why."""

from rota.core.explain.explain import WaitExplainer
from rota.core.lifecycle.node_refusals import REFUSED_S
from rota.core.lifecycle.size_caps import CAP_S
from rota.core.model.commands import StartWorkers
from rota.core.model.events import NodeSeen, WorkersLost
from rota.core.model.job import JobId, NodeRefusal
from rota.core.model.node import NodeId
from rota.core.scheduling.plan import Plan, check
from rota.core.scheduling.round import decide
from tests.support.builders import Lab, cluster, job, live_job
from tests.unit.core import view_builders
from tests.unit.core.view_builders import nodes, place_all, request, view, where

WHY = "no volume there"


def refuse(lab: Lab, name: str, *workers: int) -> None:
    """By the nodes that these workers, or all, were sent to."""
    known = lab.job(name)
    numbers = frozenset(workers or known.numbers)
    lab.tell(WorkersLost(known.id, known.attempt, numbers, WHY, is_refused=True))


def nodes_of(lab: Lab, name: str) -> list[str]:
    return [slot.node for slot in lab.job(name).allocation]


def why(lab: Lab, name: str) -> str:
    seen = lab.kernel.view(lab.now)
    answers = WaitExplainer(seen, decide(seen, lab.policy))
    return str(answers.wait_reason(lab.job(name)))


def test_a_job_is_sent_to_one_node_after_the_other_without_delay() -> None:
    lab = Lab(cluster("4x1 A100"))
    lab.submit(job("a"))
    tried: list[str] = []
    for _ in range(4):
        lab.round()
        tried += nodes_of(lab, "a")
        refuse(lab, "a")
    assert tried == ["node-01", "node-02", "node-03", "node-04"]


def test_a_job_that_every_node_rejected_waits_and_is_retried() -> None:
    lab = Lab(cluster("2x1 A100"))
    lab.submit(job("a"))
    for _ in range(2):
        lab.round()
        refuse(lab, "a")
    lab.round()
    assert lab.job("a").state == "queued"
    assert why(lab, "a") == (
        f"waits for another node or a later retry: node-01, node-02 rejected it: {WHY}"
    )
    lab.wait(REFUSED_S - 1)
    lab.round()
    assert lab.job("a").state == "queued"
    assert lab.kernel.next_timer_s() == REFUSED_S, "the next retry"
    lab.wait(1)
    lab.round()
    assert nodes_of(lab, "a") == ["node-01"]


def test_a_node_that_rejected_one_job_still_runs_others() -> None:
    lab = Lab(cluster("1x2 A100"))
    lab.submit(job("a"))
    lab.round()
    refuse(lab, "a")
    lab.submit(job("b", 2))
    lab.round()
    assert nodes_of(lab, "b") == ["node-01"] * 2


def test_a_job_waits_for_a_node_that_did_not_reject_it() -> None:
    """Free capacity on a node that rejected the job does not count."""
    lab = Lab(cluster("1x1 A100, 1x2 A100"))
    lab.submit(job("a"))
    lab.round()
    refuse(lab, "a")
    lab.submit(job("b", 2, priority=1))
    lab.round()
    assert nodes_of(lab, "b") == ["node-02"] * 2
    lab.round()
    assert "node-01 rejected it" in why(lab, "a")
    lab.started("b")
    lab.exited("b")
    lab.round()
    assert nodes_of(lab, "a") == ["node-02"]


def test_the_last_refusal_counts_for_all() -> None:
    lab = Lab(cluster("2x1 A100"))
    lab.submit(job("a"))
    lab.round()
    refuse(lab, "a")
    lab.wait(REFUSED_S - 1)
    lab.round()
    refuse(lab, "a")
    lab.wait(2)
    lab.round()
    assert lab.job("a").state == "queued", "node-01 is not tried again yet"


def test_a_gang_with_one_rejected_worker_moves_as_a_whole() -> None:
    lab = Lab(cluster("2x2 A100"))
    lab.submit(job("a", 2))
    lab.round()
    lab.started("a", [0])
    refuse(lab, "a", 1)
    lab.exited("a", 143, [0])
    lab.round()
    assert nodes_of(lab, "a") == ["node-02"] * 2


def test_a_plan_from_before_the_rejection_is_not_adopted() -> None:
    lab = Lab(cluster("1x1 A100"))
    lab.submit(job("a"))
    plan = lab.decide()
    lab.commit(plan)
    refuse(lab, "a")
    assert lab.kernel.commit(plan, lab.now).commands == []
    lab.wait(REFUSED_S)
    [command] = lab.kernel.commit(plan, lab.now).commands
    assert isinstance(command, StartWorkers)


def growing(before: str, after: str) -> Lab:
    """A live job that runs on one GPU, and whose second worker is on its way."""
    lab = Lab(cluster(before), policy="elastic-fifo")
    lab.submit(live_job("a", "1..2"))
    lab.round()
    lab.started("a")
    for node in cluster(after):
        lab.tell(NodeSeen(node))
    lab.round()
    assert len(lab.job("a").members) == 2
    return lab


def test_rejected_new_workers_are_not_sent_there_again() -> None:
    lab = growing("1x1 A100", "2x1 A100")
    refuse(lab, "a", 1)
    lab.switched("a")
    lab.round()
    assert nodes_of(lab, "a") == ["node-01"]
    assert (lab.job("a").state, len(lab.job("a").members)) == ("running", 1)
    lab.wait(REFUSED_S)
    lab.round()
    assert len(lab.job("a").members) == 2


def test_a_job_rejected_by_its_own_node_does_not_grow_for_a_while() -> None:
    """Where it is, it can be."""
    lab = growing("1x1 A100", "1x2 A100")
    refuse(lab, "a", 1)
    lab.switched("a")
    lab.wait(REFUSED_S)
    lab.round()
    assert lab.job("a").refusal is None
    assert (lab.job("a").state, len(lab.job("a").members)) == ("running", 1)
    lab.wait(CAP_S)
    lab.round()
    assert len(lab.job("a").members) == 2


def test_the_placement_does_not_use_a_node_that_rejected_the_job() -> None:
    sent = view_builders.job(
        "sent", gpus=2, priority=1, refusal=NodeRefusal((NodeId("n1"),), 100.0)
    )
    there = view_builders.runs("there", "n2/0,1")
    everybody = view(nodes("2 2"), sent, there)
    placed = place_all(everybody, [request(sent), request(there)], movable=[there.id])
    assert where(placed) == {"sent": "n2/0,1", "there": "n1/0,1"}


def test_a_plan_for_a_node_that_rejected_the_job_is_a_violation() -> None:
    sent = view_builders.job("sent", refusal=NodeRefusal((NodeId("n1"),), 100.0))
    plan = Plan({JobId("sent"): view_builders.slots("n1/0")}, {JobId("sent"): "A"})
    broken = check(plan, view(nodes("1 1"), sent))
    assert broken == ("sent is planned on n1, which does not admit it",)
