"""Numbers out of whatever scripts and daemons hand over."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_trainer.messages import Orders, orders_from
from rota_trainer.place import Place, find_place
from rota_trainer.values import as_number, n_samples


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.array(2), 2.0)),
        *((float("nan"), None), (float("-inf"), None), ("1", None), (b"1", None), (None, None)),
        *(([1.0], None), (np.array([1, 2]), None), (10**400, None), (1j, None)),
    ],
)
def test_a_number_is_finite_and_one(value: Any, number: float | None) -> None:
    assert as_number(value) == number


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        *((np.zeros((8, 3)), 8), ((np.zeros((8, 3)), np.zeros(8)), 8), ([np.zeros((4, 2))], 4)),
        *(({"input": np.zeros((5, 2))}, 5), ([1.0, 2.0, 3.0], 3), ([[1, 2], [3, 4]], 2)),
        *((7, 0), (None, 0), ([], 0), ({}, 0), (np.float32(1), 0), (SimpleNamespace(shape=3), 0)),
    ],
)
def test_samples_are_counted_where_they_can_be(batch: Any, count: int) -> None:
    assert n_samples(batch) == count


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"stop": JSON, "insists_in_s": JSON, "notes": JSON}))
def test_any_answer_is_orders(raw: Any) -> None:
    orders = orders_from(raw)
    assert isinstance(orders.stop, str)
    assert orders.insists_in_s is None or orders.insists_in_s >= 0
    assert all(isinstance(note, str) for note in orders.notes)


def test_orders_of_a_newer_daemon_are_understood_as_far_as_they_are_known() -> None:
    raw = {"stop": "preempted", "insists_in_s": 60, "notes": ["a"], "switch": {"to": 4}}
    assert orders_from(raw) == Orders("preempted", 60.0, ["a"])


GIVEN = {
    "ROTA_URL": "http://127.0.0.1:1",
    "ROTA_TOKEN": "t",
    "ROTA_JOB": "j7",
    "ROTA_ATTEMPT": "3",
    "ROTA_WORKER": "j7/3/2/nonce",
    "RANK": "2",
    "EPOCHS_DONE": "4.5",
    "ROTA_EPOCHS": "90",
    "ROTA_CHECKPOINT_DIR": "/checkpoints/j7",
    "ROTA_BEGAN": "1700000000.5",
}


def test_a_worker_finds_its_place() -> None:
    assert find_place(GIVEN) == Place(
        *("http://127.0.0.1:1", "t", "j7", 3, 2, 2, 0, 4.5, 90.0, 2),
        checkpoint_dir="/checkpoints/j7",
        began_s=1700000000.5,
    )


@pytest.mark.parametrize("missing", ["ROTA_URL", "ROTA_TOKEN", "ROTA_JOB"])
def test_without_all_of_it_a_script_runs_alone(missing: str) -> None:
    assert find_place({**GIVEN, missing: ""}).url == ""


@given(st.fixed_dictionaries({name: st.text() for name in GIVEN if name != "ROTA_CHECKPOINT_DIR"}))
def test_no_environment_is_too_odd(env: dict[str, str]) -> None:
    place = find_place(env)
    assert place.epochs_done >= 0
    assert place.worker >= 0
