"""One daemon is the leader; another one takes over with the state in the cluster only."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.layout import NODE
from tests.kubernetes.support.daemon_process import (
    KubernetesDaemonProcess,
    kubernetes_daemon,
    standby_daemon,
)
from tests.kubernetes.support.daemons import HELD, DaemonLab, open_daemon_lab
from tests.kubernetes.support.kubectl import Kubectl
from tests.support.daemon_process import wait_until
from tests.support.seed_counts import only_long
from tests.support.timeouts import PATIENCE_S

TOLD = ("state", "fence")


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Iterator[DaemonLab]:
    with open_daemon_lab(cluster, namespace) as opened:
        yield opened


@pytest.fixture
def lone_lab(whole_cluster: Cluster, namespace: str) -> Iterator[DaemonLab]:
    """Exclusive, so that jobs of other tests are not placed on simulated nodes."""
    with open_daemon_lab(whole_cluster, namespace) as opened:
        yield opened


@pytest.fixture
def leader(cards: Cluster, namespace: str) -> Iterator[KubernetesDaemonProcess]:
    with kubernetes_daemon(cards, namespace) as made:
        made.up()
        yield made


@pytest.fixture
def standby(leader: KubernetesDaemonProcess) -> Iterator[KubernetesDaemonProcess]:
    """With an empty disk."""
    with standby_daemon(leader) as made:
        yield made


def test_a_replica_with_an_empty_disk_restores_everything(lab: DaemonLab) -> None:
    first = lab.daemon().leads()
    ids = [first.submit(name=f"job-{n}", priority=n) for n in range(3)]
    lab.make("resnet", **HELD)
    ids.append(lab.reaches("resnet", "held")["id"])
    first.ask("POST", f"/v1/jobs/{ids[0]}/cancel")
    first.ask("PATCH", f"/v1/jobs/{ids[2]}", json={"priority": 8, "time_limit": "2h"})
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
    edited = second.ask("GET", f"/v1/jobs/{ids[2]}")
    assert (edited["job"]["priority"], edited["request"]["time_limit"]) == (8, "2h")
    until(lambda: "moves to box in" in str(second.ask("GET", f"/v1/jobs/{ids[1]}")), "the plan")
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


def test_the_shared_secret_is_restored_after_a_delete(lab: DaemonLab) -> None:
    """The next daemon knows the key of accepted jobs and all tokens."""
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


def test_workers_without_a_status_are_adopted(lone_lab: DaemonLab) -> None:
    """A worker's pod is created before the status of its job is written."""
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


def test_a_standby_is_healthy_and_takes_over(lab: DaemonLab) -> None:
    """Also if the clock of the holder is far behind or ahead."""
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


def test_a_standby_stops_on_request(lab: DaemonLab) -> None:
    """Also as the first process of a container, which the kernel does not end by default."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}
    path, _, name = lease_of(lab).rpartition("/")
    lab.cluster.api.create(path, {"metadata": {"name": name}, "spec": spec})
    alone = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    standby = lab.daemon(runner=alone).waits()
    outside = standby.process.pid
    [first] = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()
    os.kill(int(first), signal.SIGTERM)
    assert standby.process.wait(60) == 0, standby.log()


def test_a_deleted_lease_is_created_again(lab: DaemonLab) -> None:
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
def test_a_standby_takes_over_from_a_killed_leader(
    leader: KubernetesDaemonProcess, standby: KubernetesDaemonProcess
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


def test_a_resumed_leader_sends_no_old_commands(
    leader: KubernetesDaemonProcess, standby: KubernetesDaemonProcess
) -> None:
    """When it was suspended, a start, a stop and a cancel were pending; meanwhile a pod, the end
    of a job and a submit arrived. Another leader has handled all of them."""
    assert leader.process is not None
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
    leader.process.send_signal(signal.SIGSTOP)
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
    leader.process.send_signal(signal.SIGCONT)
    assert leader.process.wait(PATIENCE_S) != 0, "it has to begin anew, as a standby"
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
    """A submit to a suspended daemon. 0: no answer."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        url = f"http://{listen}/v1/jobs"
        return httpx2.post(url, json=HELD, headers=headers, timeout=PATIENCE_S).status_code
    except httpx2.TransportError:
        return 0


def live_pods(kube_daemon: KubernetesDaemonProcess) -> list[dict[str, Any]]:
    found = kube_daemon.cluster.api.items(kube_daemon.pods_path)
    return [each for each in found if each["status"]["phase"] not in ("Succeeded", "Failed")]


def has_told_all(kube_daemon: KubernetesDaemonProcess) -> bool:
    """No write is pending, and all objects are up to date."""
    states = {each.id: each.state for each in kube_daemon.client.jobs(limit=100).jobs}
    told = {name: state for name, (_, state, _) in told_by(kube_daemon).items()}
    return states == told and "starting" not in told.values()


def uids(kube_daemon: KubernetesDaemonProcess) -> dict[str, str]:
    """Uids of pods that have not ended, by name."""
    metas = [each["metadata"] for each in live_pods(kube_daemon)]
    return {each["name"]: each["uid"] for each in metas}


def all_that_it_could_change(kube_daemon: KubernetesDaemonProcess) -> tuple[object, ...]:
    """Pods as they were asked for, objects, and what the jobs said."""
    pods = [
        (each["metadata"]["uid"], each["metadata"].get("deletionTimestamp"), each["spec"])
        for each in kube_daemon.cluster.api.items(kube_daemon.pods_path)
    ]
    return sorted(pods, key=lambda pod: pod[0]), told_by(kube_daemon), kube_daemon.heard()


def told_by(witness: Kubectl) -> dict[str, Any]:
    """The statuses of the jobs, without fields that a leader updates at any time."""
    path = f"/apis/rota.dev/v1alpha1/namespaces/{witness.namespace}/trainingjobs"
    return {
        each["metadata"]["name"]: (each["spec"], *map((each.get("status") or {}).get, TOLD))
        for each in witness.cluster.api.items(path)
    }


def lease_of(lab: DaemonLab) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{lab.namespace}/leases/rota"
