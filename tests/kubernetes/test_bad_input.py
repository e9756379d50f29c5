"""What people and clusters get wrong: each ends in a reason that can be read, the GPUs free."""

from collections.abc import Iterator
from typing import Any

import pytest

from rota.core.exits import IDLE_ATTEMPTS_MAX
from rota.wire.jobs import FINAL_STATES
from tests.e2e.house import wait_until
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster, python_pod
from tests.kubernetes.cluster.places import CARDS_PER_NODE
from tests.kubernetes.outpost import Outpost
from tests.kubernetes.shared import a_shared_outpost, a_turn


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    with a_shared_outpost(running_cluster) as made:
        yield made


@pytest.fixture
def outpost(shared: Outpost) -> Iterator[Outpost]:
    with a_turn(shared) as ours:
        yield ours


def fails(outpost: Outpost, words: str, **fields: Any) -> str:
    """Submits what cannot be; its reason is told everywhere, and nothing is left of it."""
    job = outpost.submit("say came", gpus="1", **fields)
    assert outpost.ends(job).state == "failed"
    assert words in outpost.why(job)
    assert words in outpost.rota("story", job).stdout.replace("\n", " ")
    until(lambda: words in outpost.status_of(job).get("reason", ""), "the reason on the resource")
    until(lambda: not outpost.live_pods(job), "its pods to go")
    assert outpost.heard(job) == []
    assert len(outpost.starts(job)) == 1
    assert not outpost.client.status().gpus_held
    return outpost.why(job)


def test_an_image_that_does_not_exist(outpost: Outpost) -> None:
    words = "its image cannot be pulled"
    assert "pull secret" in fails(outpost, words, image="rota.test/none:1")
    story = outpost.client.story(outpost.client.jobs().jobs[0].id)
    assert any(words in each.reason for each in story if each.after == "starting"), "told early"


def test_a_claim_that_does_not_exist(outpost: Outpost) -> None:
    assert "does the claim exist" in fails(
        outpost, "its volume cannot be had", mounts=["pvc:nowhere:/data"]
    )


def test_a_claim_that_is_never_bound(outpost: Outpost) -> None:
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    claim = {"metadata": {"name": "unbound"}, "spec": {**storage, "storageClassName": "none"}}
    path = f"/api/v1/namespaces/{outpost.namespace}/persistentvolumeclaims"
    outpost.cluster.api.create(path, claim)
    fails(outpost, "its volume cannot be had", mounts=["pvc:unbound:/data"])


def test_a_file_server_that_is_not_there(outpost: Outpost) -> None:
    """Its pod asks for the right volume, has a node, and never starts."""
    pods = outpost.cluster.api.watch(outpost.pods_path)
    said = fails(outpost, "its volume cannot be mounted", mounts=["nfs:127.0.0.1:/none:/data"])
    assert "the file server" in said
    volumes = next(pods)["object"]["spec"]["volumes"]
    wanted = {"server": "127.0.0.1", "path": "/none", "readOnly": True}
    assert [each["nfs"] for each in volumes if "nfs" in each] == [wanted]


def test_a_quota_that_is_used_up(outpost: Outpost) -> None:
    """What it refuses waits, however often it was tried, and runs when there is room."""
    path = f"/api/v1/namespaces/{outpost.namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "0"}
    outpost.cluster.api.create(path, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    until(lambda: outpost.cluster.api.get(f"{path}/none").get("status"), "the quota to hold")
    try:
        job, words = outpost.submit("say came", gpus="1"), "exceeded quota: none"
        until(lambda: len(outpost.starts(job)) > IDLE_ATTEMPTS_MAX, "tries")
        until(lambda: words in outpost.why(job), "the reason")
        until(lambda: words in outpost.status_of(job).get("reason", ""), "it on the resource")
        assert outpost.live_pods(job) == []
    finally:
        outpost.cluster.api.delete(f"{path}/none")
    assert outpost.ends(job).state == "succeeded"


def test_pods_that_the_cluster_does_not_admit(outpost: Outpost) -> None:
    """Folders of the node, in this case."""
    path, label = f"/api/v1/namespaces/{outpost.namespace}", "pod-security.kubernetes.io/enforce"
    outpost.cluster.api.patch(path, {"metadata": {"labels": {label: "baseline"}}})
    try:
        fails(outpost, "violates PodSecurity")
    finally:
        outpost.cluster.api.patch(path, {"metadata": {"labels": {label: None}}})


def test_a_webhook_that_is_down(outpost: Outpost) -> None:
    """Its words are told at once, the GPU is free again, and the job runs when it is mended."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    selected = {"matchLabels": {"kubernetes.io/metadata.name": outpost.namespace}}
    webhook = {
        "name": "down.rota.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule | {"resources": ["pods"]}],
        "namespaceSelector": selected,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    name, words = f"down-{outpost.namespace}", "failed calling webhook"
    outpost.cluster.api.create(path, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        job = outpost.submit("say came", gpus="1")
        until(lambda: words in outpost.why(job), "the reason")
        until(lambda: len(outpost.starts(job)) > 1, "another try")
        story = [(each.before, each.after) for each in outpost.client.story(job)]
        assert ("starting", "queued") in story
    finally:
        outpost.cluster.api.delete(f"{path}/{name}")
    assert outpost.ends(job).state == "succeeded"


def test_a_pod_that_somebody_deletes_runs_again(outpost: Outpost) -> None:
    """Also that of a program which takes it well."""
    job = outpost.submit("trap 'exit 0' TERM; say came; await on", gpus="1", retries=1)
    outpost.kubectl("delete", "pod", outpost.pod_runs(job), "--timeout=60s")
    outpost.says(job, "came", attempt=2)
    assert "somebody deleted its pod" in outpost.rota("story", job).stdout
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"


def test_a_pod_that_somebody_edits_is_still_the_jobs(outpost: Outpost) -> None:
    """For a daemon that has never seen it before, as well, and which no status tells of it."""
    job = outpost.submit("say came; await on", gpus="1")
    pod = outpost.pod_runs(job)
    others = python_pod("theirs", "import time; time.sleep(1000)", gpus=CARDS_PER_NODE - 1)
    outpost.cluster.api.create(outpost.pods_path, others)
    wait_until(lambda: outpost.client.status().gpus == 1, "what others hold to be known")
    labels = ["rota.dev/job-", "rota.dev/attempt=7", "rota.dev/worker-", "rota.dev/user=eve"]
    labels += ["rota.dev/role=placeholder"]
    outpost.kubectl("label", "--overwrite", "pod", pod, *labels)
    outpost.kubectl("annotate", "--overwrite", "pod", pod, "rota.dev/job=other", "rota.dev/gpus=3")
    finalizers = '{"metadata":{"finalizers":null}}'
    outpost.kubectl("patch", "pod", pod, "--type=merge", "-p", finalizers)
    outpost.kill()
    outpost.give_up_lease()
    outpost.up()
    wait_until(lambda: outpost.client.status().gpus == 1, "the same to be known again")
    outpost.allow("on")
    assert outpost.ends(job).state == "succeeded"
    assert [each.words for each in outpost.heard(job)] == ["came"]
    assert len(outpost.starts(job)) == 1
    outpost.cluster.api.delete(f"{outpost.pods_path}/theirs", grace_s=1)
    wait_until(lambda: outpost.client.status().gpus == CARDS_PER_NODE, "all cards to be free")


def test_what_is_in_another_namespace_is_not_ours(outpost: Outpost) -> None:
    spec = {"command": ["sleep", "1000"], "gpus": "1"}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob", "spec": spec}
    with outpost.cluster.namespace() as other:
        objects = f"/apis/rota.dev/v1alpha1/namespaces/{other}/trainingjobs"
        outpost.cluster.api.create(objects, {**body, "metadata": {"name": "theirs"}})
        ours = outpost.submit("true", gpus="0")
        assert outpost.ends(ours).state in FINAL_STATES
        assert "status" not in outpost.cluster.api.get(f"{objects}/theirs")
        assert "theirs" not in [each.name for each in outpost.client.jobs().jobs]
        outpost.cluster.api.delete(f"{objects}/theirs")
