"""Whatever the scheduler's values hold, they come back from text as they were."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from enum import StrEnum
from types import UnionType
from typing import Any, NewType, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rota.core.estimation.epoch_samples import EpochStats
from rota.core.estimation.speed_model import (
    PRIOR,
    FitTerms,
    MeasuredSize,
    SpeedModel,
    estimated,
)
from rota.core.model.job import Ended, Held, Job, Phase, Queued, Running, Starting, Stopping
from rota.core.model.node import Node
from rota.store.codec import CodecError, decode, encode

texts = st.text(max_size=8)
LEAVES: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(-(2**60), 2**60),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Anything that fits a hint, so that a field which joins the model is drawn by itself."""
    if hint in LEAVES:
        return LEAVES[hint]
    if isinstance(hint, NewType):
        return values(hint.__supertype__)
    if get_origin(hint) in (Union, UnionType):
        return st.one_of(*(values(each) for each in get_args(hint)))
    if hint is type(None):
        return st.none()
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return st.sampled_from(hint)
    return containers(hint) if get_origin(hint) else objects(hint)


def containers(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Mapping:
        return st.dictionaries(*map(values, arguments), max_size=3)
    if origin is tuple and arguments[-1] is not ...:
        return st.tuples(*map(values, arguments))
    several = st.lists(values(arguments[0]), max_size=3)
    return several.map(tuple if origin is tuple else frozenset)


def objects(kind: Any) -> st.SearchStrategy[Any]:
    hints = get_type_hints(kind)
    drawn = st.builds(
        kind, **{each.name: values(hints[each.name]) for each in fields(kind) if each.init}
    )
    if kind is SpeedModel:
        return st.one_of(st.just(PRIOR), st.just(estimated(60.0)), measured_models())
    return drawn


def measured_models() -> st.SearchStrategy[SpeedModel]:
    """Models as measurements make them. Sizes and times are positive, as `learn` requires."""
    sizes = st.builds(MeasuredSize, st.integers(1, 2**40), st.booleans())
    stats = st.builds(EpochStats, st.integers(1, 9), st.floats(1e-3, 1e6), st.floats(0, 1e6))
    return st.builds(
        SpeedModel,
        values(float),
        values(float),
        measured=st.dictionaries(sizes, stats, max_size=3),
        assumed=values(tuple[float, ...]),
        terms=values(FitTerms | None),
    )


jobs = objects(Job)


@pytest.mark.parametrize("phase", get_args(Phase))
@given(drawn=st.data())
def test_a_job_in_any_phase_comes_back(phase: type, drawn: st.DataObject):
    hints = get_type_hints(Job)
    others = {each.name: values(hints[each.name]) for each in fields(Job) if each.name != "phase"}
    job = drawn.draw(st.builds(Job, phase=objects(phase), **others))
    again = decode(Job, encode(job))
    assert again == job
    assert type(again.phase) is phase
    assert encode(again) == encode(job)


def test_every_phase_is_drawn():
    assert set(get_args(Phase)) == {Held, Queued, Starting, Running, Stopping, Ended}


@given(kept=st.one_of(objects(Node), objects(SpeedModel)))
def test_nodes_and_models_come_back(kept: Node | SpeedModel):
    assert decode(type(kept), encode(kept)) == kept


@given(job=jobs, cut=st.integers(0, 200))
def test_text_that_was_cut_is_refused(job: Job, cut: int):
    text = encode(job)
    assume(cut < len(text))
    with pytest.raises(CodecError):
        decode(Job, text[:cut])


def test_infinity_comes_back():
    assert (
        decode(SpeedModel, encode(SpeedModel(math.inf, 0.5, assumed=(0.0, -math.inf)))).one_s
        == math.inf
    )
