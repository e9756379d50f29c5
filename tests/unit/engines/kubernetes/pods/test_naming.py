"""Valid names for objects, and recognising our pods."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.model.allocation import Slot
from rota.core.model.commands import StartWorkers
from rota.core.model.job import JobId
from rota.core.model.node import NodeId
from rota.engines.interface import Program, WorkerId
from rota.engines.kubernetes.gpu_sharing.placeholder_pod import gpu_location_of, placeholder
from rota.engines.kubernetes.pods import naming
from rota.engines.kubernetes.pods.manifest import pod_of
from rota.engines.kubernetes.pods.placement import placements
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.support.kube_objects import WORKER, Object, pod

DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
START = StartWorkers(WORKER.job_id, 1, 0, (Slot(NodeId("n1"), (0,)),))
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def test_a_pod_name_has_attempt_generation_and_worker() -> None:
    assert naming.pod_name(WorkerId(JobId("2k4x"), 3, 7), 2) == "rota-2k4x-a3-g2-w7"


@given(st.text(min_size=1, max_size=200))
def test_any_text_becomes_a_name_and_a_label(word: str) -> None:
    name = naming.pod_name(WorkerId(JobId(word), 1, 0), 0)
    assert DNS.fullmatch(name)
    assert len(name) <= 63
    assert LABEL.fullmatch(naming.label(word))
    assert len(naming.label(word)) <= 63


@given(st.text(max_size=60), st.text(max_size=60))
def test_two_texts_never_share_a_name(one: str, other: str) -> None:
    assert (naming.slug(one) == naming.slug(other)) == (one == other)


def test_a_pod_is_recognised() -> None:
    assert naming.worker_of(pod()) == WORKER


def test_our_pod_is_recognised_without_labels() -> None:
    made = pod_of(placements(START)[0], Program(("true",)), settings=KubernetesSettings())
    made["metadata"] |= {"labels": {naming.ATTEMPT: "7"}, "annotations": None}
    assert naming.worker_of(made) == WORKER
    made["spec"]["containers"].insert(0, {"name": "beside", "env": []})
    assert naming.worker_of(made) == WORKER
    made["metadata"]["name"] = "rota-other-a1-g0-w0"
    assert naming.worker_of(made) is None


def plain(placed: str = "job/1/0/u1", **labels: str) -> Object:
    """A pod that a user created and rota placed."""
    meta = {"name": "mine", "uid": "u1", "labels": labels, "annotations": {naming.PLACED: placed}}
    return pod(meta=meta, spec={"schedulerName": "rota", "containers": [{"name": "main"}]})


def test_an_external_pod_is_recognised_by_its_annotation() -> None:
    assert naming.worker_of(plain()) == WORKER
    assert naming.worker_of(plain(naming.placed_annotation(WORKER, uid="u1"))) == WORKER
    assert naming.worker_of(plain("job/one/0/u1")) is None
    assert naming.worker_of(plain("u1")) is None


def test_an_external_pod_is_never_a_placeholder() -> None:
    dressed = plain(**{naming.MANAGED_BY: "rota", naming.ROLE: naming.PLACEHOLDER})
    assert naming.worker_of(dressed) == WORKER
    assert not naming.is_placeholder(dressed)


def test_a_pod_with_copied_labels_is_foreign() -> None:
    """Otherwise it could report for a worker that it is not."""
    other = plain()
    other["spec"]["schedulerName"] = "default-scheduler"
    assert naming.worker_of(other) is None
    assert naming.worker_of(plain("job/1/0/u2")) is None
    labels = {naming.MANAGED_BY: "rota", naming.JOB: "job", naming.ATTEMPT: "1", naming.WORKER: "0"}
    unmarked = plain(**labels)
    unmarked["metadata"]["annotations"] = None
    assert naming.worker_of(unmarked) is None


def test_a_placeholder_is_recognised_without_labels() -> None:
    holder = placeholder(("n1", 3), WORKER, settings=KubernetesSettings())
    holder["metadata"] |= {"labels": None, "annotations": {naming.NODE: "n2", naming.GPUS: "7"}}
    assert naming.is_placeholder(holder)
    assert gpu_location_of(holder) == ("n1", 3)


@pytest.mark.parametrize("name", ["rota-card-mine", "rota-job-a1-g0-w0"])
def test_a_placeholder_label_alone_is_not_enough(name: str) -> None:
    """Otherwise a foreign pod would be deleted as an unused placeholder."""
    labels = {naming.MANAGED_BY: "rota", naming.ROLE: naming.PLACEHOLDER}
    assert not naming.is_placeholder(pod(meta={"name": name, "labels": labels}))
    theirs = placeholder(("n1", 3), WORKER, settings=KubernetesSettings())
    theirs["metadata"]["name"] = name
    theirs["spec"]["schedulerName"] = naming.SCHEDULER
    assert not naming.is_placeholder(theirs)
