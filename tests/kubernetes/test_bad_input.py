"""Wrong jobs and wrong clusters: each ends with a readable reason, and the GPUs are free again."""

from typing import Any

from rota.core.lifecycle.worker_exits import IDLE_ATTEMPTS_MAX
from rota.wire.jobs import FINAL_STATES
from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import python_pod
from tests.kubernetes.cluster.layout import CARDS_PER_NODE
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess
from tests.support.daemon_process import wait_until


def fails(kube_daemon: KubernetesDaemonProcess, words: str, **fields: Any) -> str:
    """Submit an impossible job; its reason appears everywhere, and nothing of it is left."""
    job = kube_daemon.submit("say came", gpus="1", **fields)
    assert kube_daemon.ends(job).state == "failed"
    assert words in kube_daemon.why(job)
    assert words in kube_daemon.rota("story", job).stdout.replace("\n", " ")
    until(
        lambda: words in kube_daemon.status_of(job).get("reason", ""), "the reason on the resource"
    )
    until(lambda: not kube_daemon.live_pods(job), "its pods to go")
    assert kube_daemon.heard(job) == []
    assert len(kube_daemon.starts(job)) == 1
    assert not kube_daemon.client.status().gpus_held
    return kube_daemon.why(job)


def test_job_with_a_missing_image_ends_with_a_reason(kube_daemon: KubernetesDaemonProcess) -> None:
    words = "its image cannot be pulled"
    assert "pull secret" in fails(kube_daemon, words, image="rota.test/none:1")
    story = kube_daemon.client.story(kube_daemon.client.jobs().jobs[0].id)
    assert any(words in each.reason for each in story if each.after == "starting"), "told early"


def test_job_with_a_missing_claim_ends_with_a_reason(kube_daemon: KubernetesDaemonProcess) -> None:
    assert "check that the claim exists" in fails(
        kube_daemon, "its volume is not available", mounts=["pvc:nowhere:/data"]
    )


def test_job_with_an_unbound_claim_ends_with_a_reason(kube_daemon: KubernetesDaemonProcess) -> None:
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
    claim = {"metadata": {"name": "unbound"}, "spec": {**storage, "storageClassName": "none"}}
    path = f"/api/v1/namespaces/{kube_daemon.namespace}/persistentvolumeclaims"
    kube_daemon.cluster.api.create(path, claim)
    fails(kube_daemon, "its volume is not available", mounts=["pvc:unbound:/data"])


def test_job_with_an_unreachable_file_server_ends_with_a_reason(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Its pod has the right volume and a node, but never starts."""
    pods = kube_daemon.cluster.api.watch(kube_daemon.pods_path)
    said = fails(kube_daemon, "its volume cannot be mounted", mounts=["nfs:127.0.0.1:/none:/data"])
    assert "file server" in said
    volumes = next(pods)["object"]["spec"]["volumes"]
    wanted = {"server": "127.0.0.1", "path": "/none", "readOnly": True}
    assert [each["nfs"] for each in volumes if "nfs" in each] == [wanted]


def test_job_waits_for_an_exhausted_quota(kube_daemon: KubernetesDaemonProcess) -> None:
    """A refused job waits, and runs when the quota has room."""
    path = f"/api/v1/namespaces/{kube_daemon.namespace}/resourcequotas"
    hard = {"requests.nvidia.com/gpu": "0"}
    kube_daemon.cluster.api.create(path, {"metadata": {"name": "none"}, "spec": {"hard": hard}})
    until(lambda: kube_daemon.cluster.api.get(f"{path}/none").get("status"), "the quota to hold")
    try:
        job, words = kube_daemon.submit("say came", gpus="1"), "exceeded quota: none"
        until(lambda: len(kube_daemon.starts(job)) > IDLE_ATTEMPTS_MAX, "tries")
        until(lambda: words in kube_daemon.why(job), "the reason")
        until(lambda: words in kube_daemon.status_of(job).get("reason", ""), "it on the resource")
        assert kube_daemon.live_pods(job) == []
    finally:
        kube_daemon.cluster.api.delete(f"{path}/none")
    assert kube_daemon.ends(job).state == "succeeded"


def test_job_whose_pods_are_not_admitted_ends_with_a_reason(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Node folders, in this case."""
    path, label = (
        f"/api/v1/namespaces/{kube_daemon.namespace}",
        "pod-security.kubernetes.io/enforce",
    )
    kube_daemon.cluster.api.patch(path, {"metadata": {"labels": {label: "baseline"}}})
    try:
        fails(kube_daemon, "violates PodSecurity")
    finally:
        kube_daemon.cluster.api.patch(path, {"metadata": {"labels": {label: None}}})


def test_job_waits_for_an_unavailable_webhook(kube_daemon: KubernetesDaemonProcess) -> None:
    """Its message is reported at once, the GPU is free again, and the job runs when the webhook
    works."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"]}
    selected = {"matchLabels": {"kubernetes.io/metadata.name": kube_daemon.namespace}}
    webhook = {
        "name": "down.rota.test",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [rule | {"resources": ["pods"]}],
        "namespaceSelector": selected,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    name, words = f"down-{kube_daemon.namespace}", "failed calling webhook"
    kube_daemon.cluster.api.create(path, {"metadata": {"name": name}, "webhooks": [webhook]})
    try:
        job = kube_daemon.submit("say came", gpus="1")
        until(lambda: words in kube_daemon.why(job), "the reason")
        until(lambda: len(kube_daemon.starts(job)) > 1, "another try")
        story = [(each.before, each.after) for each in kube_daemon.client.story(job)]
        assert ("starting", "queued") in story
    finally:
        kube_daemon.cluster.api.delete(f"{path}/{name}")
    assert kube_daemon.ends(job).state == "succeeded"


def test_a_deleted_pod_runs_again(kube_daemon: KubernetesDaemonProcess) -> None:
    """Also if the program handles SIGTERM."""
    job = kube_daemon.submit("trap 'exit 0' TERM; say came; await on", gpus="1", retries=1)
    kube_daemon.kubectl("delete", "pod", kube_daemon.pod_runs(job), "--timeout=60s")
    kube_daemon.says(job, "came", attempt=2)
    assert "its pod was deleted" in kube_daemon.rota("story", job).stdout
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"


def test_an_edited_pod_still_belongs_to_its_job(kube_daemon: KubernetesDaemonProcess) -> None:
    """Also for a new daemon without any status of the job."""
    job = kube_daemon.submit("say came; await on", gpus="1")
    pod = kube_daemon.pod_runs(job)
    others = python_pod("theirs", "import time; time.sleep(1000)", gpus=CARDS_PER_NODE - 1)
    kube_daemon.cluster.api.create(kube_daemon.pods_path, others)
    wait_until(lambda: kube_daemon.client.status().gpus == 1, "what others hold to be known")
    labels = ["rota.dev/job-", "rota.dev/attempt=7", "rota.dev/worker-", "rota.dev/user=eve"]
    labels += ["rota.dev/role=placeholder"]
    kube_daemon.kubectl("label", "--overwrite", "pod", pod, *labels)
    kube_daemon.kubectl(
        "annotate", "--overwrite", "pod", pod, "rota.dev/job=other", "rota.dev/gpus=3"
    )
    finalizers = '{"metadata":{"finalizers":null}}'
    kube_daemon.kubectl("patch", "pod", pod, "--type=merge", "-p", finalizers)
    kube_daemon.kill()
    kube_daemon.give_up_lease()
    kube_daemon.up()
    wait_until(lambda: kube_daemon.client.status().gpus == 1, "the same to be known again")
    kube_daemon.allow("on")
    assert kube_daemon.ends(job).state == "succeeded"
    assert [each.words for each in kube_daemon.heard(job)] == ["came"]
    assert len(kube_daemon.starts(job)) == 1
    kube_daemon.cluster.api.delete(f"{kube_daemon.pods_path}/theirs", grace_s=1)
    wait_until(lambda: kube_daemon.client.status().gpus == CARDS_PER_NODE, "all cards to be free")


def test_objects_in_another_namespace_are_ignored(kube_daemon: KubernetesDaemonProcess) -> None:
    spec = {"command": ["sleep", "1000"], "gpus": "1"}
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob", "spec": spec}
    with kube_daemon.cluster.namespace() as other:
        objects = f"/apis/rota.dev/v1alpha1/namespaces/{other}/trainingjobs"
        kube_daemon.cluster.api.create(objects, {**body, "metadata": {"name": "theirs"}})
        ours = kube_daemon.submit("true", gpus="0")
        assert kube_daemon.ends(ours).state in FINAL_STATES
        assert "status" not in kube_daemon.cluster.api.get(f"{objects}/theirs")
        assert "theirs" not in [each.name for each in kube_daemon.client.jobs().jobs]
        kube_daemon.cluster.api.delete(f"{objects}/theirs")
