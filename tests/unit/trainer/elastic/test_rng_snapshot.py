"""The random states that a broken step is put back to."""

import random
from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing here trains")
np = pytest.importorskip("numpy")

from rota_trainer.live.chance import Chance  # noqa: E402
from rota_trainer.torch import randomness  # noqa: E402

DRAWS: list[Callable[[], object]] = [
    lambda: None,
    lambda: np.random.rand(3),
    np.random.randn,
    lambda: np.random.seed(7),
    lambda: np.random.shuffle([1, 2, 3]),
    random.random,
    lambda: torch.rand(2),
]


def test_whatever_a_step_draws_can_be_drawn_again() -> None:
    """Normal numbers come in pairs: to take the second changes nothing but that it is gone."""
    before = randomness.take()
    chance, choose = Chance(), random.Random(1)
    for _ in range(300):
        taken, exact = chance.take(), randomness.take()
        assert (taken["numpy"], taken["python"]) == (exact["numpy"], exact["python"])
        assert torch.equal(taken["torch"], exact["torch"])
        choose.choice(DRAWS)()
    randomness.put_back(before)


def test_numpy_is_asked_only_when_it_has_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    ask = randomness.numpy_state
    monkeypatch.setattr(randomness, "numpy_state", lambda numpy: asked.append(1) or ask(numpy))
    np.random.seed(3)
    chance = Chance()
    for _ in range(5):
        chance.take()
    assert len(asked) == 1
    np.random.rand()
    chance.take()
    assert len(asked) == 2
