"""Numbers, orders and environment variables from untrusted values."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota_trainer.progress.numbers import as_number, n_samples
from rota_trainer.reporting.environment import WorkerEnvironment, read_environment
from rota_trainer.reporting.messages import Orders, orders_from


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((1, 1.0), (True, 1.0), (np.float32(0.5), 0.5), (np.array(2), 2.0)),
        *((float("nan"), None), (float("-inf"), None), ("1", None), (b"1", None), (None, None)),
        *(([1.0], None), (np.array([1, 2]), None), (10**400, None), (1j, None)),
    ],
)
def test_only_finite_scalars_are_numbers(value: Any, number: float | None) -> None:
    assert as_number(value) == number


@pytest.mark.parametrize(
    ("batch", "count"),
    [
        *((np.zeros((8, 3)), 8), ((np.zeros((8, 3)), np.zeros(8)), 8), ([np.zeros((4, 2))], 4)),
        *(({"input": np.zeros((5, 2))}, 5), ([1.0, 2.0, 3.0], 3), ([[1, 2], [3, 4]], 2)),
        *((7, 0), (None, 0), ([], 0), ({}, 0), (np.float32(1), 0), (SimpleNamespace(shape=3), 0)),
    ],
)
def test_samples_of_batches(batch: Any, count: int) -> None:
    assert n_samples(batch) == count


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON | st.fixed_dictionaries({"stop": JSON, "insists_in_s": JSON, "notes": JSON}))
def test_any_response_parses_to_orders(raw: Any) -> None:
    orders = orders_from(raw)
    assert isinstance(orders.stop, str)
    assert orders.insists_in_s is None or orders.insists_in_s >= 0
    assert all(isinstance(note, str) for note in orders.notes)


def test_unknown_fields_of_orders_are_ignored() -> None:
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


def test_environment_of_a_worker() -> None:
    assert read_environment(GIVEN) == WorkerEnvironment(
        *("http://127.0.0.1:1", "t", "j7", 3, 2, 2, 0, 4.5, 90.0, 2),
        checkpoint_dir="/checkpoints/j7",
        began_s=1700000000.5,
    )


@pytest.mark.parametrize("missing", ["ROTA_URL", "ROTA_TOKEN", "ROTA_JOB"])
def test_incomplete_environment_means_standalone(missing: str) -> None:
    assert read_environment({**GIVEN, missing: ""}).url == ""


@given(st.fixed_dictionaries({name: st.text() for name in GIVEN if name != "ROTA_CHECKPOINT_DIR"}))
def test_invalid_variables_are_ignored(env: dict[str, str]) -> None:
    place = read_environment(env)
    assert place.epochs_done >= 0
    assert place.worker >= 0
