"""One daemon commands; another takes over with what the cluster knows, and nothing else."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.counts import only_long
from tests.e2e.house import wait_until
from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.places import NODE
from tests.kubernetes.daemons import HELD, Lab, open_lab
from tests.kubernetes.outpost import Outpost, a_standby, an_outpost
from tests.kubernetes.witness import Witness
from tests.patience import PATIENCE_S

TOLD = ("state", "fence")


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Iterator[Lab]:
    with open_lab(cluster, namespace) as opened:
        yield opened


@pytest.fixture
def lone_lab(whole_cluster: Cluster, namespace: str) -> Iterator[Lab]:
    """Where nobody else's jobs can be sent to nodes that only pretend."""
    with open_lab(whole_cluster, namespace) as opened:
        yield opened


@pytest.fixture
def leader(cards: Cluster, namespace: str) -> Iterator[Outpost]:
    with an_outpost(cards, namespace) as made:
        made.up()
        yield made


@pytest.fixture
def standby(leader: Outpost) -> Iterator[Outpost]:
    """With nothing on its disk."""
    with a_standby(leader) as made:
        yield made


def test_a_replica_without_anything_rebuilds_all(lab: Lab) -> None:
    first = lab.daemon().leads()
    ids = [first.submit(name=f"job-{n}", priority=n) for n in range(3)]
    lab.make("resnet", **HELD)
    ids.append(lab.reaches("resnet", "held")["id"])
    first.ask("POST", f"/v1/jobs/{ids[0]}/cancel")
    keyed = first.ask("POST", "/v1/jobs", json=HELD, headers={"Idempotency-Key": "k"})["ids"]
    token = first.ask("POST", "/v1/tokens", json={"user": "nobody", "scope": "read_only"})["secret"]
    first.ask("POST", f"/v1/nodes/{NODE}/drain")
    move = {"jobs": ids[1:2], "to": "box", "url": "http://127.0.0.1:1", "token": "x", "after": "1h"}
    first.ask("POST", "/v1/jobs/move", json=move)
    before = first.jobs()
    first.kill()
    lab.give_up_lease()
    second = lab.daemon().leads()
    assert second.jobs() == before
    until(lambda: "goes to box in" in str(second.ask("GET", f"/v1/jobs/{ids[1]}")), "the plan")
    [node] = [each for each in second.ask("GET", "/v1/nodes") if each["id"] == NODE]
    assert node["is_draining"]
    again = second.ask("POST", "/v1/jobs", json=HELD, headers={"Idempotency-Key": "k"})["ids"]
    assert again == keyed
    asked = httpx2.get(
        f"http://127.0.0.1:{second.port}/v1/jobs", headers={"Authorization": f"Bearer {token}"}
    )
    assert asked.status_code == 200
    newer = second.submit()
    assert newer > max(before)


def test_what_replicas_share_is_put_back_when_somebody_deletes_it(lab: Lab) -> None:
    """The key of what was accepted, and who may come in: the next daemon knows both."""
    first = lab.daemon().leads()
    token = first.ask("POST", "/v1/tokens", json={"user": "nobody", "scope": "read_only"})["secret"]
    path = f"/api/v1/namespaces/{lab.namespace}/secrets"
    before = lab.cluster.api.get(f"{path}/rota-state")["data"]
    lab.kubectl("delete", "secret", "rota-state")

    def kept() -> dict[str, str]:
        found = {each["metadata"]["name"]: each for each in lab.cluster.api.items(path)}
        return found["rota-state"]["data"] if "rota-state" in found else {}

    until(lambda: before.items() <= kept().items(), "all of it to be back")
    accepted = first.submit()
    first.kill()
    lab.give_up_lease()
    second = lab.daemon().leads()
    assert second.jobs() == {accepted: "held"}
    asked = httpx2.get(
        f"http://127.0.0.1:{second.port}/v1/jobs", headers={"Authorization": f"Bearer {token}"}
    )
    assert asked.status_code == 200


def test_workers_that_no_status_tells_of_are_taken_over(lone_lab: Lab) -> None:
    """A job's first worker is sent off before its status says so: its pod does."""
    lab = lone_lab
    path = f"/api/v1/namespaces/{lab.namespace}/pods"

    def uids() -> set[str]:
        return {each["metadata"]["uid"] for each in lab.cluster.api.items(path)}

    with lab.cluster.kwok_nodes(1, gpus=2) as [node]:
        wanted = {"hold": False, "gpus": "1", "node_labels": {"kubernetes.io/hostname": node}}
        first = lab.daemon().leads()
        ids = [first.submit(**wanted) for _ in range(2)]
        until(lambda: len(uids()) == 2, "their pods")
        made = uids()
        first.kill()
        lab.give_up_lease()
        second = lab.daemon().leads()
        waits = second.submit(**wanted)
        expected = {**dict.fromkeys(ids, "running"), waits: "queued"}
        until(lambda: second.jobs() == expected, "both to run on")
        assert uids() == made
        for job_id in ids:
            assert lab.reaches(job_id, "running")["fence"] == {"attempt": 1, "generation": 0}
        for job_id in expected:
            second.ask("POST", f"/v1/jobs/{job_id}/cancel")
        until(lambda: not uids(), "their end")


def test_a_standby_is_alive_takes_no_work_and_is_handed_over_to(lab: Lab) -> None:
    """A holder whose clock is far behind, or ahead, renews as well as any other."""
    first = lab.daemon().leads()
    second = lab.daemon().waits()
    answer = httpx2.post(f"http://127.0.0.1:{second.port}/v1/jobs", json=HELD)
    assert answer.status_code == 503
    assert answer.json()["code"] == "standby"
    spec = lab.cluster.api.get(lease_of(lab))["spec"]
    assert spec["leaseDurationSeconds"] == 10
    seen = spec["renewTime"]
    until(lambda: lab.cluster.api.get(lease_of(lab))["spec"]["renewTime"] != seen, "a renewal")
    assert second.probe("readyz") == 503
    job_id = first.submit()
    first.end()
    assert first.process.returncode == 0
    assert second.leads().jobs() == {job_id: "held"}


def test_a_standby_ends_when_it_is_asked_to(lab: Lab) -> None:
    """As the first process of a container, which the kernel does not end by itself, too."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    path, _, name = lease_of(lab).rpartition("/")
    lab.cluster.api.create(path, {"metadata": {"name": name}, "spec": spec})
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    standby = lab.daemon(runner=alone).waits()
    outside = standby.process.pid
    [first] = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    assert standby.process.wait(60) == 0, standby.log()


def test_a_lease_that_somebody_deletes_is_made_again(lab: Lab) -> None:
    daemon = lab.daemon().leads()
    job = daemon.submit()
    lab.give_up_lease()

    def holder() -> str:
        try:
            return lab.cluster.api.get(lease_of(lab))["spec"]["holderIdentity"]
        except RefusedError:
            return ""

    assert f"-{daemon.process.pid}-" in until(holder, "the lease")
    daemon.ask("POST", f"/v1/jobs/{job}/release")
    daemon.kill()
    lab.give_up_lease()
    lab.daemon().leads().ask("POST", f"/v1/jobs/{job}/cancel")
    lab.reaches(job, "cancelled")


@only_long
def test_a_leader_that_is_killed_leaves_everything_to_its_standby(
    leader: Outpost, standby: Outpost
) -> None:
    over = leader.submit("say came", gpus="1")
    assert leader.ends(over).state == "succeeded"
    runs = leader.submit("say came; await runs", gpus="1", priority=2)
    gang = leader.submit("say came; await gang", gpus="2", gpus_per_worker=1, priority=2)
    ends = leader.submit("say came; await ends", gpus="1", priority=2)
    wait_until(lambda: len(leader.heard()) == 5, "all of them to run")
    wanted = leader.request("say came", gpus="4")
    second = leader.client.submit(wanted, key="second")
    first = leader.submit("say came", gpus="4", priority=1)
    wait_until(lambda: leader.why(first), "why it waits")
    made = uids(leader)
    leader.kill()
    leader.allow("ends")
    standby.ready()
    assert standby.client.submit(wanted, key="second") == second
    assert standby.ends(ends).state == "succeeded"
    for job in (runs, gang):
        standby.reaches(job, "running")
    assert {standby.state_of(each) for each in (first, second)} == {"queued"}
    assert uids(standby) == {name: uid for name, uid in made.items() if ends not in name}
    for job in (runs, gang):
        assert standby.status_of(job)["fence"] == {"attempt": 1, "generation": 0}
    assert standby.overbooked() == []
    for name in ("runs", "gang"):
        leader.allow(name)
    for each in (over, runs, gang, first, second):
        assert standby.ends(each).state == "succeeded"
    said = [line.job_id for line in leader.heard() if line.attempt == 1]
    assert sorted(said) == sorted([over, runs, gang, gang, ends, first, second])
    assert said[-2:] == [first, second]
    until(standby.has_room, "all GPUs to be free")


def test_a_leader_that_wakes_with_much_to_do_does_nothing_of_it(
    leader: Outpost, standby: Outpost
) -> None:
    """When it fell asleep, a start, a stop and a cancel were on their way; a pod to be bound, a
    job's end and a submit came while it slept. Somebody else has done all of it."""
    assert leader.daemon is not None
    token = leader.client.create_token(user="daemon").secret
    first = leader.submit("say came; await first", gpus="1")
    leader.says(first, "came")
    runs = leader.submit("say came; await runs", gpus="1")
    leaves = leader.submit("trap '' TERM; say came; await leaves", gpus="1", grace="100s")
    waits = leader.submit("say came", gpus="4")
    for job in (runs, leaves):
        leader.says(job, "came")
    leader.client.cancel(leaves)
    leader.reaches(leaves, "stopping")
    leader.allow("first")
    assert leader.ends(first).state == "succeeded"
    starts = leader.submit("say came; await starts", gpus="1")
    leader.client.cancel(waits)
    leader.daemon.send_signal(signal.SIGSTOP)
    assert leader.heard(starts) == []
    at_its_door = ThreadPoolExecutor(1).submit(_ask_late, leader.listen, token)
    plain = python_pod("plain", "import time; time.sleep(999)", gpus=1)
    plain["spec"]["schedulerName"] = "rota"
    leader.cluster.api.create(leader.pods_path, plain)
    standby.ready()
    leader.says(starts, "came")
    leader.allow("leaves")
    for job in (leaves, waits):
        assert standby.ends(job).state == "cancelled"
    late = standby.submit("say came; await late", gpus="1")
    leader.says(late, "came")
    wait_until(lambda: has_told_all(standby), "everything to be as it will stay")
    before = all_that_it_could_change(standby)
    leader.daemon.send_signal(signal.SIGCONT)
    assert leader.daemon.wait(PATIENCE_S) != 0, "it has to begin anew, as a standby"
    assert at_its_door.result() == 0 or at_its_door.result() >= 400
    assert all_that_it_could_change(standby) == before
    assert standby.overbooked() == []
    for name in ("runs", "starts", "late"):
        leader.allow(name)
    for job in (runs, starts, late):
        assert standby.ends(job).state == "succeeded"
    came = [(line.job_id, line.attempt) for line in leader.heard()]
    assert sorted(came) == sorted((job, 1) for job in (first, runs, leaves, starts, late))


def _ask_late(listen: str, token: str) -> int:
    """A submit that waits at the door of one who sleeps. 0: nobody answered."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        url = f"http://{listen}/v1/jobs"
        return httpx2.post(url, json=HELD, headers=headers, timeout=PATIENCE_S).status_code
    except httpx2.TransportError:
        return 0


def live_pods(outpost: Outpost) -> list[dict[str, Any]]:
    found = outpost.cluster.api.items(outpost.pods_path)
    return [each for each in found if each["status"]["phase"] not in ("Succeeded", "Failed")]


def has_told_all(outpost: Outpost) -> bool:
    """Nothing is on its way any more, and all objects say so."""
    states = {each.id: each.state for each in outpost.client.jobs(limit=100).jobs}
    told = {name: state for name, (_, state, _) in told_by(outpost).items()}
    return states == told and "starting" not in told.values()


def uids(outpost: Outpost) -> dict[str, str]:
    """Of pods that are not over, by name."""
    metas = [each["metadata"] for each in live_pods(outpost)]
    return {each["name"]: each["uid"] for each in metas}


def all_that_it_could_change(outpost: Outpost) -> tuple[object, ...]:
    """Pods as they were asked for, objects, and what the jobs said."""
    pods = [
        (each["metadata"]["uid"], each["metadata"].get("deletionTimestamp"), each["spec"])
        for each in outpost.cluster.api.items(outpost.pods_path)
    ]
    return sorted(pods, key=lambda pod: pod[0]), told_by(outpost), outpost.heard()


def told_by(witness: Witness) -> dict[str, Any]:
    """What the objects say of their jobs. Whoever leads may write more about them at any time."""
    path = f"/apis/rota.dev/v1alpha1/namespaces/{witness.namespace}/trainingjobs"
    return {
        each["metadata"]["name"]: (each["spec"], *map((each.get("status") or {}).get, TOLD))
        for each in witness.cluster.api.items(path)
    }


def lease_of(lab: Lab) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{lab.namespace}/leases/rota"
