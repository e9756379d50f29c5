"""Random states that are restored after an aborted step."""

import random
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing here trains")
np = pytest.importorskip("numpy")

from rota_trainer.elastic.rng_snapshot import RngSnapshot  # noqa: E402
from rota_trainer.torch import rng  # noqa: E402

DRAWS: list[Callable[[], object]] = [
    lambda: None,
    lambda: np.random.rand(3),
    np.random.randn,
    lambda: np.random.seed(7),
    lambda: np.random.shuffle([1, 2, 3]),
    random.random,
    lambda: torch.rand(2),
]


def test_snapshot_equals_the_exact_states() -> None:
    """Normal numbers come in pairs: to take the second changes nothing but that it is gone."""
    before = rng.capture_states()
    chance, choose = RngSnapshot(), random.Random(1)
    for _ in range(300):
        taken, exact = chance.take(), rng.capture_states()
        assert (taken["numpy"], taken["python"]) == (exact["numpy"], exact["python"])
        assert torch.equal(taken["torch"], exact["torch"])
        choose.choice(DRAWS)()
    rng.restore_states(before)


def test_numpy_state_is_read_only_after_a_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = rng.numpy_state
    monkeypatch.setattr(rng, "numpy_state", lambda numpy: asked.append(1) or ask(numpy))
    np.random.seed(3)
    chance = RngSnapshot()
    for _ in range(5):
        chance.take()
    assert len(asked) == 1
    np.random.rand()
    chance.take()
    assert len(asked) == 2
