"""The codec is strict, and leaves out default values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest

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
        ('"v":1', '"v":2', "encoded as version 2, but this rota reads version 1"),
        ('"v":1', '"w":1', "encoded as version None"),
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
    assert encode(Node(NodeId("n"))) == '{"v":1,"id":"n"}'
