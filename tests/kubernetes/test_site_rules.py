"""Rules of a site against what one TrainingJob says of itself: it ends in a reason that can be
read, and nobody else is the worse for it."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from tests.kubernetes.cluster.api import until
from tests.kubernetes.cluster.handle import Cluster
from tests.kubernetes.outpost import Outpost
from tests.kubernetes.shared import a_shared_outpost, a_turn

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
WORDS = "not in this lab"
NAME = "mute"
EVENTS = ("get", "events", "--no-headers", "--field-selector")


@pytest.fixture(scope="module")
def shared(running_cluster: Cluster) -> Iterator[Outpost]:
    with a_shared_outpost(running_cluster) as made:
        yield made


@pytest.fixture
def outpost(shared: Outpost) -> Iterator[Outpost]:
    with a_turn(shared) as ours:
        yield ours


@contextmanager
def a_rule(outpost: Outpost, job: str, *, against: str = "true") -> Generator[None]:
    """That refuses such statuses of the jobs called `NAME`; `job` is one of them, to see by it
    when the rule holds."""
    api, name = outpost.cluster.api, f"rule-{outpost.namespace}"
    selected = {"matchLabels": {"kubernetes.io/metadata.name": outpost.namespace}}
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
        return WORDS in outpost.ask_kubectl("patch", "tj", job, *words).stderr

    try:
        until(holds, "the rule")
        yield
    finally:
        api.delete(f"{BINDINGS}/{name}")
        api.delete(f"{POLICIES}/{name}")
        until(lambda: not holds(), "the rule to go")


def test_a_rule_against_the_start_of_one_job(outpost: Outpost) -> None:
    """Its GPU is free again; the resource says why as soon as it is allowed to."""
    job = outpost.submit("say came", gpus="1", name=NAME, hold=True)
    with a_rule(outpost, job, against="object.status.state == 'starting'"):
        outpost.client.release(job)
        assert outpost.ends(job).state == "cancelled"
        other = outpost.submit("say came", gpus="1")
        assert outpost.ends(other).state == "succeeded"
        assert WORDS in outpost.why(job)
        assert WORDS in outpost.rota("story", job).stdout.replace("\n", " ")
        until(lambda: WORDS in outpost.status_of(job).get("reason", ""), "it on the resource")
    assert outpost.heard(job) == []
    assert outpost.pods(job) == []
    assert outpost.has_room()


def test_a_rule_against_every_word_of_one_job(outpost: Outpost) -> None:
    """What ran goes on to its end, which holds for a daemon that has nothing but the cluster."""
    job = outpost.submit("say came; await on", gpus="1", name=NAME)
    outpost.says(job, "came")
    with a_rule(outpost, job):
        outpost.allow("on")
        assert outpost.ends(job).state == "succeeded"
        until(lambda: WORDS in outpost.kubectl(*EVENTS, f"involvedObject.name={job}"), "an event")
        assert outpost.status_of(job)["state"] in ("starting", "running")
        outpost.kill()
        outpost.lose_disk()
        outpost.give_up_lease()
        outpost.up()
        assert outpost.state_of(job) == "succeeded"
        other = outpost.submit("say came", gpus="1")
        assert outpost.ends(other).state == "succeeded"
        assert [each.words for each in outpost.heard(job)] == ["came"]
        until(outpost.has_room, "the GPUs to be free")


def test_a_rule_against_what_people_make_with_kubectl(outpost: Outpost) -> None:
    """It is refused once, and stays as it is."""
    body = {"apiVersion": "rota.dev/v1alpha1", "kind": "TrainingJob"}
    spec = {"command": ["true"], "gpus": "0", "name": NAME}
    first = outpost.submit("true", gpus="0", name=NAME, hold=True)
    with a_rule(outpost, first):
        outpost.kubectl("create", "-f", "-", given=body | {"metadata": {"name": "x"}, "spec": spec})
        about = "involvedObject.name=x"
        until(lambda: WORDS in outpost.kubectl(*EVENTS, about), "an event")
        other = outpost.submit("true", gpus="0")
        assert outpost.ends(other).state == "succeeded"
        assert len(outpost.kubectl(*EVENTS, f"{about},reason=Refused").splitlines()) == 1
        outpost.kubectl("delete", "tj", "x", "--timeout=60s")
