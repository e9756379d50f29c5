"""Nodes that would not have a job: it goes elsewhere, or waits and says why."""

from rota.core.commands import StartWorkers
from rota.core.events import NodeSeen, WorkersLost
from rota.core.explain import Answers
from rota.core.growth import CAP_S
from rota.core.model import JobId, NodeId, Refusal
from rota.core.placement import place
from rota.core.plan import Plan, check
from rota.core.refusals import REFUSED_S
from rota.core.round import decide
from tests.builders import Lab, cluster, job, live_job
from tests.unit.core import clusters
from tests.unit.core.clusters import nodes, view, where, wish

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
    answers = Answers(seen, decide(seen, lab.policy))
    return str(answers.why_it_waits(lab.job(name)))


def test_a_job_is_sent_to_one_node_after_the_other_without_delay() -> None:
    lab = Lab(cluster("4x1 A100"))
    lab.submit(job("a"))
    tried: list[str] = []
    for _ in range(4):
        lab.round()
        tried += nodes_of(lab, "a")
        refuse(lab, "a")
    assert tried == ["node-01", "node-02", "node-03", "node-04"]


def test_a_job_that_every_node_refused_waits_says_why_and_is_tried_again() -> None:
    lab = Lab(cluster("2x1 A100"))
    lab.submit(job("a"))
    for _ in range(2):
        lab.round()
        refuse(lab, "a")
    lab.round()
    assert lab.job("a").state == "queued"
    assert why(lab, "a") == (
        f"waits for another node, or a later try: node-01, node-02 would not have it: {WHY}"
    )
    lab.wait(REFUSED_S - 1)
    lab.round()
    assert lab.job("a").state == "queued"
    assert lab.kernel.next_timer_s() == REFUSED_S, "somebody looks at it then"
    lab.wait(1)
    lab.round()
    assert nodes_of(lab, "a") == ["node-01"]


def test_a_node_that_refused_one_job_is_there_for_the_others() -> None:
    lab = Lab(cluster("1x2 A100"))
    lab.submit(job("a"))
    lab.round()
    refuse(lab, "a")
    lab.submit(job("b", 2))
    lab.round()
    assert nodes_of(lab, "b") == ["node-01"] * 2


def test_a_job_waits_for_the_node_that_may_have_it() -> None:
    """Room where it was sent in vain is none."""
    lab = Lab(cluster("1x1 A100, 1x2 A100"))
    lab.submit(job("a"))
    lab.round()
    refuse(lab, "a")
    lab.submit(job("b", 2, priority=1))
    lab.round()
    assert nodes_of(lab, "b") == ["node-02"] * 2
    lab.round()
    assert "node-01 would not have it" in why(lab, "a")
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


def test_a_gang_of_which_one_was_refused_goes_elsewhere_as_a_whole() -> None:
    lab = Lab(cluster("2x2 A100"))
    lab.submit(job("a", 2))
    lab.round()
    lab.started("a", [0])
    refuse(lab, "a", 1)
    lab.exited("a", 143, [0])
    lab.round()
    assert nodes_of(lab, "a") == ["node-02"] * 2


def test_a_plan_that_was_made_before_is_not_followed() -> None:
    lab = Lab(cluster("1x1 A100"))
    lab.submit(job("a"))
    plan = decide(lab.kernel.view(lab.now), lab.policy)
    lab.round()
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


def test_newcomers_that_were_refused_do_not_come_there_again() -> None:
    lab = growing("1x1 A100", "2x1 A100")
    refuse(lab, "a", 1)
    lab.switched("a")
    lab.round()
    assert nodes_of(lab, "a") == ["node-01"]
    assert (lab.job("a").state, len(lab.job("a").members)) == ("running", 1)
    lab.wait(REFUSED_S)
    lab.round()
    assert len(lab.job("a").members) == 2


def test_a_job_that_its_own_node_takes_no_more_of_does_not_grow_for_a_while() -> None:
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


def test_nobody_is_sent_to_a_node_that_refused_him_so_that_others_need_not_move() -> None:
    sent = clusters.job("sent", gpus=2, priority=1, refusal=Refusal((NodeId("n1"),), 100.0))
    there = clusters.runs("there", "n2/0,1")
    everybody = view(nodes("2 2"), sent, there)
    placed = place(everybody, [wish(sent), wish(there)], movable=[there.id])
    assert where(placed) == {"sent": "n2/0,1", "there": "n1/0,1"}


def test_a_plan_for_a_node_that_refused_the_job_is_wrong() -> None:
    sent = clusters.job("sent", refusal=Refusal((NodeId("n1"),), 100.0))
    plan = Plan({JobId("sent"): clusters.slots("n1/0")}, {JobId("sent"): "A"})
    assert check(plan, view(nodes("1 1"), sent)) == (
        "sent is planned on a node that would not have it",
    )
