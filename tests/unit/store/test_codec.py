"""The codec is strict, and leaves out default values."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

from rota.core.estimation.speed_model import (
    PRIOR,
    MeasuredSize,
    SpeedModel,
    estimated,
    learn,
)
from rota.core.model.job import Job, JobId, Mode, Queued, ServiceTime
from rota.core.model.node import Labels, Node, NodeId
from rota.store.codec import CodecError, decode, encode
from tests.support.store_workload import node, spec

JOB = Job(JobId("j1"), spec(1), 5.0, Queued(5.0), ServiceTime(5.0))


def test_default_values_are_left_out():
    bare = Job(JobId("j1"), replace(spec(1), estimate=None), 5.0, Queued(5.0), ServiceTime(5.0))
    assert len(encode(bare)) < 300


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"attempt": "1"}, "'1' is not of type int"),
        ({"attempt": True}, "True is not of type int"),
        ({"submitted_s": math.nan}, "nan is not a number"),
        ({"submitted_s": "5"}, "'5' is not a number"),
        ({"phase": "queued"}, "'queued' is not one of Held, Queued"),
        ({"spec": None}, "None is not of type JobSpec"),
        ({"spec": replace(spec(1), mode="live")}, "'live' is not of type Mode"),
    ],
)
def test_encode_refuses_values_that_decode_cannot_read(changes: dict[str, Any], complaint: str):
    with pytest.raises(CodecError, match=complaint):
        encode(replace(JOB, **changes))


@pytest.mark.parametrize(
    ("before", "after", "complaint"),
    [
        ('"v":2', '"v":3', "encoded as version 3, but this rota reads version 2"),
        ('"v":2', '"w":2', "encoded as version None"),
        ('"id":"j1"', '"id":1', "1 is not of type str"),
        ('"id":"j1"', '"name":"j1"', "Job has no field name"),
        ('"id":"j1",', "", "Job lacks required fields: id"),
        ('"kind":"Queued"', '"kind":"Waiting"', "'Waiting' is not one of Held, Queued"),
        ('"since_s":5.0', '"since_s":null', "None is not a number"),
        ('"since_s":5.0', '"since_s":NaN', "nan is not a number"),
        ('"kind":"Queued"', '"kind":"Queued","exits":[]', "Queued has no field exits"),
        ('"mode":"fixed"', '"mode":"quick"', "'quick' is not a Mode"),
        ('"spec":{', '"spec":[{', "not JSON"),
    ],
)
def test_decode_refuses_text_that_does_not_match_the_type(before: str, after: str, complaint: str):
    text = encode(replace(JOB, spec=replace(spec(1), mode=Mode.FIXED)))
    assert before in text
    with pytest.raises(CodecError, match=complaint):
        decode(Job, text.replace(before, after))


@pytest.mark.parametrize("text", ["", "null", "[]", "7", "[" * 100_000])
def test_decode_refuses_text_that_is_not_an_object(text: str):
    with pytest.raises(CodecError):
        decode(Node, text)


def test_lists_are_lists():
    labelled = replace(node(1), labels=Labels([("zone", "a")]))
    text = encode(labelled)
    assert decode(Node, text) == labelled
    for after in ('"labels":{}', '"labels":[["zone"]]'):
        with pytest.raises(CodecError):
            decode(Node, text.replace('"labels":[["zone","a"]]', after))


@dataclass(frozen=True)
class Odd:
    when: complex


@dataclass(frozen=True)
class OddList:
    whens: list[int]


@pytest.mark.parametrize("odd", [Odd(1j), OddList([1])])
def test_an_unsupported_type_is_named(odd: object):
    with pytest.raises(CodecError, match="cannot encode type"):
        encode(odd)


def test_nodes_with_infinite_memory_are_short():
    assert encode(Node(NodeId("n"))) == '{"v":2,"id":"n"}'


@pytest.mark.parametrize("max_workers", [2, 100_000])
def test_a_speed_model_is_as_small_for_a_large_job(max_workers: int):
    model = PRIOR
    for workers, epoch_s in ((1, 100.0), (2, 55.0)):
        size = MeasuredSize(workers, crosses=False)
        model = learn(model, size, epoch_s=epoch_s, max_workers=max_workers)
    assert len(encode(replace(JOB, speed=model))) < 1000


def version_1(speed: str) -> SpeedModel:
    """The model of a job that version 1 stored."""
    text = encode(JOB).replace('"v":2', '"v":1')
    return decode(Job, f'{text[:-1]},"speed":{speed}}}').speed


def test_a_table_of_version_1_is_what_was_assumed():
    model = version_1('{"one_s":60.0,"speedups":[0.0,1.0,1.5],"error":0.3}')
    assert model == estimated(60.0, speedups=(0.0, 1.0, 1.5))
    assert version_1('{"one_s":60.0,"error":0.3}') == estimated(60.0)


def test_a_fit_of_version_1_is_repeated():
    """100/n + 10 (n-1)/n."""
    times = '[[{"workers":1,"crosses":false},{"count":1,"mean_s":100.0,"squares":0.0}],'
    times += '[{"workers":2,"crosses":false},{"count":1,"mean_s":55.0,"squares":0.0}]]'
    table = "[0.0,1.0,1.81818,2.5,3.07692,3.57142]"
    fit = f'{{"one_s":100.0,"speedups":{table},"error":0.1,"measured":{times}}}'
    model = version_1(fit)
    assert model.speedups(5) == pytest.approx(json.loads(table), rel=1e-3)
    assert decode(SpeedModel, encode(model)) == model


def test_jobs_with_equal_specs_share_one_spec():
    text = encode(JOB)
    assert decode(Job, text).spec is decode(Job, text).spec
    for wrong in ('"max_workers":1.0', '"max_workers":true'):
        with pytest.raises(CodecError):
            decode(Job, text.replace('"name":', f'{wrong},"name":'))
