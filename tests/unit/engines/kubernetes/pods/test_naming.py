"""Names that a cluster takes, and that tell whose a pod is."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core.commands import StartWorkers
from rota.core.model import JobId, NodeId, Slot
from rota.engines.base import Program, WorkerId
from rota.engines.kubernetes import names
from rota.engines.kubernetes.manifests import pod_of, seats
from rota.engines.kubernetes.placeholders import place_of, placeholder
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
    made["spec"]["containers"].insert(0, {"name": "beside", "env": []})
    assert names.worker_of(made) == WORKER
    made["metadata"]["name"] = "rota-other-a1-g0-w0"
    assert names.worker_of(made) is None


def plain(placed: str = "job/1/0/u1", **labels: str) -> Object:
    """One that somebody made themselves, and that was placed by us."""
    meta = {"name": "mine", "uid": "u1", "labels": labels, "annotations": {names.PLACED: placed}}
    return pod(meta=meta, spec={"schedulerName": "rota", "containers": [{"name": "main"}]})


def test_a_pod_that_was_left_to_us_is_known_by_its_note() -> None:
    assert names.worker_of(plain()) == WORKER
    assert names.worker_of(plain(names.placed(WORKER, uid="u1"))) == WORKER
    assert names.worker_of(plain("job/one/0/u1")) is None
    assert names.worker_of(plain("u1")) is None


def test_a_pod_that_was_left_to_us_holds_no_cards_whatever_it_wears() -> None:
    dressed = plain(**{names.MANAGED_BY: "rota", names.ROLE: names.PLACEHOLDER})
    assert names.worker_of(dressed) == WORKER
    assert not names.is_placeholder(dressed)


def test_a_pod_that_only_wears_our_marks_is_nobodys() -> None:
    """Else it could speak for a worker that it is not; a copy of one that was placed wears them."""
    other = plain()
    other["spec"]["schedulerName"] = "default-scheduler"
    assert names.worker_of(other) is None
    assert names.worker_of(plain("job/1/0/u2")) is None
    labels = {names.MANAGED_BY: "rota", names.JOB: "job", names.ATTEMPT: "1", names.WORKER: "0"}
    unmarked = plain(**labels)
    unmarked["metadata"]["annotations"] = None
    assert names.worker_of(unmarked) is None


def test_what_holds_a_card_is_known_whatever_became_of_its_labels() -> None:
    holder = placeholder(("n1", 3), WORKER, settings=KubernetesSettings())
    holder["metadata"] |= {"labels": None, "annotations": {names.NODE: "n2", names.GPUS: "7"}}
    assert names.is_placeholder(holder)
    assert place_of(holder) == ("n1", 3)


@pytest.mark.parametrize("name", ["rota-card-mine", "rota-job-a1-g0-w0"])
def test_a_pod_that_only_wears_the_label_of_a_placeholder_is_none(name: str) -> None:
    """Else what nobody shares would be removed with all that it does."""
    labels = {names.MANAGED_BY: "rota", names.ROLE: names.PLACEHOLDER}
    assert not names.is_placeholder(pod(meta={"name": name, "labels": labels}))
    theirs = placeholder(("n1", 3), WORKER, settings=KubernetesSettings())
    theirs["metadata"]["name"] = name
    theirs["spec"]["schedulerName"] = names.SCHEDULER
    assert not names.is_placeholder(theirs)
