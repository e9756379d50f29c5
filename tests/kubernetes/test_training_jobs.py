"""TrainingJobs on a real API server: requests through kubectl, and their results in the objects."""

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.cluster.kwok_nodes import NODES
from tests.kubernetes.cluster.layout import GPU_RESOURCE
from tests.kubernetes.support.daemons import HELD, Daemon, DaemonLab, open_daemon_lab
from tests.kubernetes.support.shared_daemon import shared_namespace
from tests.support.timeouts import PATIENCE_S

COUNT = "count/trainingjobs.rota.dev"
ELASTIC = {**HELD, "gpus": "0", "mode": "restart"}


@pytest.fixture(scope="module")
def lab(running_cluster: Cluster) -> Iterator[DaemonLab]:
    with (
        shared_namespace(running_cluster) as namespace,
        open_daemon_lab(running_cluster, namespace) as opened,
    ):
        yield opened


@pytest.fixture(scope="module")
def daemon(lab: DaemonLab) -> Daemon:
    return lab.daemon().leads()


@pytest.fixture
def own_lab(cluster: Cluster, namespace: str) -> Iterator[DaemonLab]:
    """Without a daemon."""
    with open_daemon_lab(cluster, namespace) as opened:
        yield opened


def test_an_object_becomes_a_job_of_its_user(lab: DaemonLab, daemon: Daemon) -> None:
    lab.make("resnet", **HELD)
    status = lab.reaches("resnet", "held")
    job = daemon.job(status["id"])
    assert (job["user"], job["name"]) == ("ada", "resnet")
    assert lab.condition("resnet", "Accepted")["status"] == "True"
    columns = lab.kubectl("get", "tj", "resnet", "-o", "wide").split()
    assert {"STATE", "GPUS", "PROGRESS", "FINISH", "held", "ada"} <= set(columns)


def test_a_field_that_does_not_exist_is_refused_by_the_cluster(lab: DaemonLab) -> None:
    body = {
        "apiVersion": "rota.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "wrong"},
        "spec": {"command": ["p"], "gpuss": 1},
    }
    refused = lab.ask_kubectl("apply", "-f", "-", given=body)
    assert refused.returncode != 0
    assert "spec.gpuss" in refused.stderr
    assert lab.found("wrong") is None


def test_a_refusal_is_reported_and_an_edit_fixes_it(lab: DaemonLab, daemon: Daemon) -> None:
    lab.make("big", **{**HELD, "gpus": "100000"})
    assert "it can never run" in lab.reaches("big", "refused")["reason"]
    refused = lab.condition("big", "Accepted")
    assert (refused["status"], refused["reason"]) == ("False", "Refused")
    assert "it can never run" in until(lambda: events_of(lab, "big"), "an event")
    lab.make("big", **HELD)
    lab.reaches("big", "held")
    assert daemon.jobs()[lab.status("big")["id"]] == "held"


def test_deleting_an_object_cancels_its_job(lab: DaemonLab, daemon: Daemon) -> None:
    lab.make("unwanted", **HELD)
    job_id = lab.reaches("unwanted", "held")["id"]
    lab.kubectl("delete", "tj", "unwanted", "--timeout=60s")
    assert daemon.jobs()[job_id] == "cancelled"
    assert "JobCancelled: cancelled by kubectl" in daemon.story(job_id)


def test_an_oversized_object_does_not_affect_others(lab: DaemonLab, daemon: Daemon) -> None:
    """New or edited. The cluster limits labels and annotations, but not the spec."""
    much = [f"example.com/{'x' * 50}{n:05}" for n in range(21_400)]
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob", "spec": HELD}
    lab.make("grown", **HELD)
    job_id = lab.reaches("grown", "held")["id"]
    try:
        meta = {"name": "fat", "finalizers": much}
        lab.cluster.api.create(lab.objects, {**body, "metadata": meta})
        lab.cluster.api.patch(f"{lab.objects}/grown", {"metadata": {"finalizers": much}})
        for name in ("fat", "grown"):
            assert "too large" in until(lambda name=name: events_of(lab, name), "an event")
        assert daemon.jobs()[job_id] == "cancelled"
        other = daemon.submit()
        assert daemon.jobs()[other] == "held"
    finally:
        for name in ("fat", "grown"):
            lab.cluster.api.delete(f"{lab.objects}/{name}")
            lab.cluster.api.patch(f"{lab.objects}/{name}", {"metadata": {"finalizers": None}})


def test_a_forced_delete_cancels_the_job(lab: DaemonLab, daemon: Daemon) -> None:
    job_id = daemon.submit()
    lab.kubectl("delete", "tj", job_id, "--wait=false")
    lab.ask_kubectl("patch", "tj", job_id, "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    until(lambda: daemon.jobs()[job_id] == "cancelled", "the end of the job")
    assert lab.found(job_id) is None


def test_scale_resizes_within_the_limits_of_the_job(lab: DaemonLab, daemon: Daemon) -> None:
    if n_cards(lab.cluster) < 4:
        pytest.skip("this cluster has no four GPUs")
    lab.make("elastic", **{**HELD, "gpus": "1..4", "mode": "restart"})
    status = lab.reaches("elastic", "held")
    lab.kubectl("scale", "tj", "elastic", "--replicas=2")
    until(
        lambda: "JobResized: resized to 2 by kubectl" in daemon.story(status["id"]), "the new size"
    )
    lab.kubectl("scale", "tj", "elastic", "--replicas=9")
    assert "1 to 4 GPUs, not 9" in lab.condition("elastic", "SpecApplied")["message"]


@pytest.mark.usefixtures("daemon")
def test_a_repeated_refused_edit_is_reported_once(lab: DaemonLab) -> None:
    lab.make("one", command=["sleep", "1000"], gpus="0", hold=True)
    lab.reaches("one", "held")
    for n in (2, 3, 4):
        lab.kubectl("scale", "tj/one", f"--replicas={n}")

        def answered(generation: int = n) -> bool:
            return lab.status("one")["observedGeneration"] >= generation

        until(answered, "an answer")
    assert len(events_of(lab, "one").splitlines()) == 1


def test_finished_objects_are_deleted_unless_users_created_them(own_lab: DaemonLab) -> None:
    """Also if no daemon was running at their end."""
    lab = own_lab
    lab.make("theirs", **HELD)
    daemon = lab.daemon(keep_ended="0s").leads()
    lab.reaches("theirs", "held")
    ours = daemon.submit()
    ids = [ours, lab.status("theirs")["id"]]
    for each in ids:
        daemon.ask("POST", f"/v1/jobs/{each}/cancel")
    until(lambda: lab.found(ours) is None, "our object to go")
    assert lab.reaches("theirs", "cancelled")
    assert {daemon.jobs()[each] for each in ids} == {"cancelled"}


def test_a_namespace_can_be_deleted(own_lab: DaemonLab) -> None:
    """Including the lease, without which a daemon may change nothing."""
    lab = own_lab
    daemon = lab.daemon().leads()
    lab.make("held", command=["sleep", "1000"], gpus="0", hold=True)
    lab.reaches("held", "held")
    own = daemon.submit()
    until(lambda: lab.found(own), "its object")
    lab.kubectl("delete", "namespace", lab.namespace, "--timeout=60s")
    assert daemon.process.wait(PATIENCE_S) != 0


def test_edits_are_applied_or_refused(lab: DaemonLab, daemon: Daemon) -> None:
    lab.make("edited", **HELD)
    job_id = lab.reaches("edited", "held")["id"]
    lab.make("edited", **{**HELD, "priority": 7, "time_limit": "2h", "image": "another"})
    denied = lab.condition("edited", "SpecApplied")
    assert denied["status"] == "False"
    assert denied["message"].startswith("image cannot be changed")
    assert daemon.job(job_id)["priority"] == 7
    request = daemon.ask("GET", f"/v1/jobs/{job_id}")["request"]
    assert (request["time_limit"], request["image"] == "another") == ("2h", False)
    generation = (lab.found("edited") or {})["metadata"]["generation"]
    assert lab.status("edited")["observedGeneration"] == generation


def test_two_refused_edits_are_reported_together(lab: DaemonLab, daemon: Daemon) -> None:
    lab.make("twice", **HELD)
    job_id = lab.reaches("twice", "held")["id"]
    lab.make("twice", **{**HELD, "image": "another", "size": 5})
    message = lab.condition("twice", "SpecApplied")["message"]
    assert "image cannot be changed" in message
    assert "cannot change its size" in message
    daemon.ask("POST", f"/v1/jobs/{job_id}/cancel")
    lab.reaches("twice", "cancelled")


def test_a_submit_is_an_object_before_it_is_acknowledged(lab: DaemonLab, daemon: Daemon) -> None:
    ids = [daemon.submit(name=f"job-{n}") for n in range(3)]
    for job_id in ids:
        found = lab.found(job_id)
        assert found is not None
        assert found["spec"]["command"] == HELD["command"]
        assert found["metadata"]["finalizers"] == ["rota.dev/job"]


def test_a_copy_of_an_object_is_a_new_job(lab: DaemonLab, daemon: Daemon) -> None:
    original = daemon.submit(priority=3)
    made: dict[str, Any] = lab.found(original) or {}
    meta = {"name": "copy", "annotations": made["metadata"]["annotations"]}
    lab.cluster.api.create(lab.objects, {**made, "metadata": meta, "status": {}})
    copied = lab.reaches("copy", "held")["id"]
    assert copied != original
    assert daemon.job(original)["state"] == "held"
    assert daemon.job(copied)["user"] == lab.namespace


def put_back(lab: DaemonLab, made: dict[str, Any]) -> None:
    """Restore a copy of the object, with our seal and without its status."""
    meta = {each: made["metadata"][each] for each in ("name", "labels", "annotations")}
    lab.cluster.api.create(lab.objects, {**made, "metadata": meta, "status": {}})


def test_a_restored_object_does_not_run_again(own_lab: DaemonLab) -> None:
    """Neither with the daemon that saw it end nor with one with an empty disk."""
    lab = own_lab
    first = lab.daemon().leads()
    ids = [first.submit(name=f"job-{n}") for n in range(2)]
    made: list[dict[str, Any]] = [lab.found(each) or {} for each in ids]
    for each in ids:
        first.ask("POST", f"/v1/jobs/{each}/cancel")
        lab.reaches(each, "cancelled")
        lab.kubectl("delete", "tj", each, "--timeout=60s")
    put_back(lab, made[0])
    assert f"job {ids[0]} has cancelled" in lab.reaches(ids[0], "refused")["reason"]
    assert set(first.jobs().values()) == {"cancelled"}
    until(lambda: settled(lab) >= ids[1], "every replica to know that these have had a status")
    first.kill()
    put_back(lab, made[1])
    lab.give_up_lease()
    second = lab.daemon().leads()
    assert f"job {ids[1]} is unknown" in lab.reaches(ids[1], "refused")["reason"]
    assert second.jobs() == {}
    lab.kubectl("delete", "tj", *ids, "--timeout=60s")


def settled(lab: DaemonLab) -> str:
    path = f"/api/v1/namespaces/{lab.namespace}/secrets/rota-state"
    return b64decode(lab.cluster.api.get(path)["data"].get("settled", "")).decode()


def test_a_quota_of_jobs_refuses_only_the_whole_submit(own_lab: DaemonLab) -> None:
    lab = own_lab
    daemon = lab.daemon().leads()
    lab.kubectl("create", "quota", "few", f"--hard={COUNT}=3")
    count(lab, used=0)
    kept = daemon.submit()
    with daemon.client() as client:
        refused = client.post("/v1/jobs", json={**HELD, "array": "0-4"})
    assert refused.status_code == 422
    assert "exceeded quota: few" in refused.json()["message"]
    assert (daemon.probe("readyz"), daemon.jobs()) == (200, {kept: "held"})
    until(lambda: len(lab.cluster.api.items(lab.objects)) == 1, "nothing of it to stay")
    count(lab, used=1)
    again = daemon.submit()
    assert set(daemon.jobs()) == {kept, again}


def count(lab: DaemonLab, *, used: int) -> None:
    """A cluster of tests may not count objects of kinds that are new to it."""
    status = {"hard": {COUNT: "3"}, "used": {COUNT: str(used)}}
    path = f"/api/v1/namespaces/{lab.namespace}/resourcequotas/few/status"
    lab.cluster.api.patch(path, {"status": status})


def test_an_unreadable_object_does_not_affect_others(own_lab: DaemonLab) -> None:
    lab = own_lab
    first = lab.daemon().leads()
    strange, plain = first.submit(), first.submit()
    for each in (strange, plain):
        lab.reaches(each, "held")
    first.kill()
    broken = {"status": {"record": '{"of": "a later version"}'}}
    lab.cluster.api.patch(f"{lab.objects}/{strange}/status", broken)
    lab.give_up_lease()
    second = lab.daemon().leads()
    assert second.jobs() == {plain: "held"}
    reason = f"TrainingJob {strange} cannot be read"
    until(lambda: reason in lab.status(strange)["reason"], "the reason")
    assert lab.status(strange)["record"] == broken["status"]["record"]


def events_of(lab: DaemonLab, name: str) -> str:
    about = f"involvedObject.name={name}"
    return lab.kubectl("get", "events", "--field-selector", about, "--no-headers")


def n_cards(cluster: Cluster) -> int:
    nodes = cluster.api.items(NODES)
    return sum(int(each["status"]["capacity"].get(GPU_RESOURCE, 0)) for each in nodes)
