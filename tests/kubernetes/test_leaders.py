"""One daemon commands; another takes over with what the cluster knows, and nothing else."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.kubernetes.cluster.api import RefusedError, until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.places import NODE
from tests.kubernetes.daemons import HELD, PATIENCE_S, Lab, open_lab


@pytest.fixture
def lab(cluster: Cluster, namespace: str) -> Iterator[Lab]:
    with open_lab(cluster, namespace) as opened:
        yield opened


@pytest.fixture
def lone_lab(whole_cluster: Cluster, namespace: str) -> Iterator[Lab]:
    """Where nobody else's jobs can be sent to nodes that only pretend."""
    with open_lab(whole_cluster, namespace) as opened:
        yield opened


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
        until(lambda: second.jobs() == expected, "both to run on", limit_s=PATIENCE_S)
        assert uids() == made
        for job_id in ids:
            assert lab.reaches(job_id, "running")["fence"] == {"attempt": 1, "generation": 0}
        for job_id in expected:
            second.ask("POST", f"/v1/jobs/{job_id}/cancel")
        until(lambda: not uids(), "their end", limit_s=PATIENCE_S)


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


def test_a_leader_that_slept_past_its_lease_changes_nothing(lab: Lab) -> None:
    old, standby = lab.daemon().leads(), lab.daemon().waits()
    job_id = old.submit()
    token = old.ask("POST", "/v1/tokens", json={"user": "daemon", "scope": "user"})["secret"]
    old.process.send_signal(signal.SIGSTOP)
    answers: list[Any] = []
    late = threading.Thread(target=_ask_late, args=(old.port, answers, token))
    late.start()
    standby.leads()
    made = standby.submit()
    for each in (job_id, made):
        lab.reaches(each, "held")
    told = told_by(lab)
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(60) != 0, "it has to begin anew, as a standby"
    late.join(60)
    assert answers[0] is None or answers[0] >= 400
    assert set(standby.jobs()) == {job_id, made}
    assert told_by(lab) == told


def _ask_late(port: int, answers: list[Any], token: str) -> None:
    """A submit that waits at the door of one who sleeps."""
    headers = {"Authorization": f"Bearer {token}"}
    try:
        answer = httpx2.post(
            f"http://127.0.0.1:{port}/v1/jobs", json=HELD, headers=headers, timeout=60
        )
        answers.append(answer.status_code)
    except httpx2.TransportError:
        answers.append(None)


def told_by(lab: Lab) -> dict[str, Any]:
    """What the objects say of their jobs. Whoever leads may write more about them at any time."""
    return {
        each["metadata"]["name"]: (each["spec"], each["status"]["state"], each["status"]["fence"])
        for each in lab.cluster.api.items(lab.objects)
    }


def lease_of(lab: Lab) -> str:
    return f"/apis/coordination.k8s.io/v1/namespaces/{lab.namespace}/leases/rota"
