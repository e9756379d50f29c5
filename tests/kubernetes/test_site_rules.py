"""Policies of a site that refuse the status of one TrainingJob: only that job ends, with a
readable reason."""

from collections.abc import Generator
from contextlib import contextmanager

from tests.kubernetes.cluster.api import until
from tests.kubernetes.support.daemon_process import KubernetesDaemonProcess

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WORDS = "not in this lab"
NAME = "mute"
EVENTS = ("get", "events", "--no-headers", "--field-selector")


@contextmanager
def a_rule(
    kube_daemon: KubernetesDaemonProcess, job: str, *, against: str = "true"
) -> Generator[None]:
    """A policy that refuses such statuses of the jobs named `NAME`; `job` is one of them, to see
    when the policy is active."""
    api, name = kube_daemon.cluster.api, f"rule-{kube_daemon.namespace}"
    selected = {"matchLabels": {"kubernetes.io/metadata.name": kube_daemon.namespace}}
    rule = {"apiGroups": ["rota.dev"], "apiVersions": ["*"], "operations": ["UPDATE"]}
    said = f"object.spec.name == '{NAME}' && ({against})"
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "namespaceSelector": selected,
            "resourceRules": [rule | {"resources": ["trainingjobs/status"]}],
        },
        "validations": [{"expression": f"!({said})", "message": WORDS}],
    }
    api.create(POLICIES, {"metadata": {"name": name}, "spec": spec})
    binding = {"policyName": name, "validationActions": ["Deny"]}
    api.create(BINDINGS, {"metadata": {"name": name}, "spec": binding})
    state = '{"status": {"state": "starting"}}'
    words = ("--subresource=status", "--type=merge", "-p", state, "--dry-run=server")

    def holds() -> bool:
        return WORDS in kube_daemon.ask_kubectl("patch", "tj", job, *words).stderr

    try:
        until(holds, "the rule")
        yield
    finally:
        api.delete(f"{BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")
        until(lambda: not holds(), "the rule to go")


def test_policy_that_rejects_the_start_of_one_job_ends_only_that_job(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """Its GPU is free again; the object shows the reason when the policy allows it."""
    job = kube_daemon.submit("say came", gpus="1", name=NAME, hold=True)
    with a_rule(kube_daemon, job, against="object.status.state == 'starting'"):
        kube_daemon.client.release(job)
        assert kube_daemon.ends(job).state == "cancelled"
        other = kube_daemon.submit("say came", gpus="1")
        assert kube_daemon.ends(other).state == "succeeded"
        assert WORDS in kube_daemon.why(job)
        assert WORDS in kube_daemon.rota("story", job).stdout.replace("\n", " ")
        until(lambda: WORDS in kube_daemon.status_of(job).get("reason", ""), "it on the resource")
    assert kube_daemon.heard(job) == []
    assert kube_daemon.pods(job) == []
    assert kube_daemon.has_room()


def test_policy_that_rejects_every_status_of_one_job_affects_only_that_job(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """A running job continues to its end, also for a daemon with an empty disk."""
    job = kube_daemon.submit("say came; await on", gpus="1", name=NAME)
    kube_daemon.says(job, "came")
    with a_rule(kube_daemon, job):
        kube_daemon.allow("on")
        assert kube_daemon.ends(job).state == "succeeded"
        until(
            lambda: WORDS in kube_daemon.kubectl(*EVENTS, f"involvedObject.name={job}"), "an event"
        )
        assert kube_daemon.status_of(job)["state"] in ("starting", "running")
        kube_daemon.kill()
        kube_daemon.lose_disk()
        kube_daemon.give_up_lease()
        kube_daemon.up()
        assert kube_daemon.state_of(job) == "succeeded"
        other = kube_daemon.submit("say came", gpus="1")
        assert kube_daemon.ends(other).state == "succeeded"
        assert [each.words for each in kube_daemon.heard(job)] == ["came"]
        until(kube_daemon.has_room, "the GPUs to be free")


def test_policy_that_rejects_objects_from_kubectl_is_reported_once(
    kube_daemon: KubernetesDaemonProcess,
) -> None:
    """The object is rejected once and does not change."""
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob"}
    spec = {"command": ["true"], "gpus": "0", "name": NAME}
    first = kube_daemon.submit("true", gpus="0", name=NAME, hold=True)
    with a_rule(kube_daemon, first):
        kube_daemon.kubectl(
            "create", "-f", "-", given=body | {"metadata": {"name": "x"}, "spec": spec}
        )
        about = "involvedObject.name=x"
        until(lambda: WORDS in kube_daemon.kubectl(*EVENTS, about), "an event")
        other = kube_daemon.submit("true", gpus="0")
        assert kube_daemon.ends(other).state == "succeeded"
        assert len(kube_daemon.kubectl(*EVENTS, f"{about},reason=Refused").splitlines()) == 1
        kube_daemon.kubectl("delete", "tj", "x", "--timeout=60s")
