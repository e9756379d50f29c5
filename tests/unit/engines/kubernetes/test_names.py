"""Names that a cluster takes, and that tell whose a pod is."""

import re

from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import StartWorkers
from rota.core.model import JobId, NodeId, Slot
from rota.engines.base import Program, WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.manifests import pod_of, seats
from rota.engines.kubernetes.settings import KubernetesSettings
from tests.unit.engines.kubernetes.objects import WORKER, Object, pod

DNS = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
START = StartWorkers(WORKER.job_id, 1, 0, (Slot(NodeId("n1"), (0,)),))
LABEL = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def test_a_pods_name_carries_the_whole_fence() -> None:
    assert names.pod_name(WorkerId(JobId("2k4x"), 3, 7), 2) == "rota-2k4x-a3-g2-w7"


@given(st.text(min_size=1, max_size=200))
def test_any_word_becomes_a_name_and_a_label(word: str) -> None:
    name = names.pod_name(WorkerId(JobId(word), 1, 0), 0)
    assert DNS.fullmatch(name)
    assert len(name) <= 63
    assert LABEL.fullmatch(names.label(word))
    assert len(names.label(word)) <= 63


@given(st.text(max_size=60), st.text(max_size=60))
def test_two_words_never_share_a_name(one: str, other: str) -> None:
    assert (names.slug(one) == names.slug(other)) == (one == other)


def test_a_pod_is_known_again() -> None:
    assert names.worker_of(pod()) == WORKER


def test_a_pod_that_we_made_is_known_whatever_became_of_its_labels() -> None:
    made = pod_of(seats(START)[0], Program(("true",)), settings=KubernetesSettings())
    made["metadata"] |= {"labels": {names.ATTEMPT: "7"}, "annotations": None}
    assert names.worker_of(made) == WORKER
    made["metadata"]["name"] = "rota-other-a1-g0-w0"
    assert names.worker_of(made) is None


def plain(**labels: str) -> Object:
    """One that somebody made themselves, and that was placed by us."""
    usual = {names.MANAGED_BY: "rota", names.JOB: "job", names.ATTEMPT: "1", names.WORKER: "0"}
    meta = {"name": "mine", "labels": usual | labels, "annotations": {names.PLAIN: "true"}}
    return pod(meta=meta, spec={"schedulerName": "rota", "containers": [{"name": "main"}]})


def test_a_pod_that_was_left_to_us_is_known_by_its_labels() -> None:
    assert names.worker_of(plain()) == WORKER
    assert names.worker_of(plain(**{names.ATTEMPT: "one"})) is None
    assert names.worker_of(plain(**{names.ROLE: names.PLACEHOLDER})) is None


def test_a_pod_that_only_wears_our_labels_is_nobodys() -> None:
    """Else it could speak for a worker that it is not."""
    other = plain()
    other["spec"]["schedulerName"] = "default-scheduler"
    assert names.worker_of(other) is None
    unmarked = plain()
    unmarked["metadata"]["annotations"] = {}
    assert names.worker_of(unmarked) is None
    unmarked["metadata"]["labels"] = None
    assert names.worker_of(unmarked) is None
