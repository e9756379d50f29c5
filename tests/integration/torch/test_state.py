"""A state is restored completely, or rejected without any change."""

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: nothing here trains")
from torch import nn  # noqa: E402
from torch.optim import lr_scheduler  # noqa: E402

from rota_trainer.torch import OtherStateError, State  # noqa: E402


def model(width: int = 4) -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, width), nn.BatchNorm1d(width), nn.Linear(width, 1))


def trained(net: nn.Module, optimizer: Any, *after_step: Any, n_steps: int = 3) -> None:
    for _ in range(n_steps):
        optimizer.zero_grad()
        net(torch.randn(8, 2)).square().mean().backward()
        optimizer.step()
        for each in after_step:
            each.step()


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "steps": lambda optimizer: lr_scheduler.StepLR(optimizer, 2),
    "milestones": lambda optimizer: lr_scheduler.MultiStepLR(optimizer, [2, 4]),
    "cosine": lambda optimizer: lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 4),
    "one cycle": lambda optimizer: lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20),
    "in sequence": lambda optimizer: lr_scheduler.SequentialLR(
        optimizer,
        [lr_scheduler.ConstantLR(optimizer), lr_scheduler.ExponentialLR(optimizer, 0.9)],
        [2],
    ),
}


@pytest.mark.parametrize("kind", SCHEDULERS)
def test_model_optimizer_and_scheduler_are_restored(kind: str, tmp_path: Path) -> None:
    parts = []
    for _ in range(2):
        net = model()
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        parts.append((net, optimizer, SCHEDULERS[kind](optimizer)))
    trained(*parts[0])
    names = ("model", "optimizer", "scheduler")
    State(**dict(zip(names, parts[0], strict=True))).save(tmp_path / "state")
    State(**dict(zip(names, parts[1], strict=True))).load(tmp_path / "state")
    for saved, loaded in zip(*parts, strict=True):
        assert same(saved.state_dict(), loaded.state_dict())


def test_scaler_sampler_generators_and_own_components_are_restored(tmp_path: Path) -> None:
    def parts() -> dict[str, Any]:
        return {
            "scaler": torch.amp.GradScaler("cpu", init_scale=2.0),
            "sampler": torch.utils.data.DistributedSampler(range(9), num_replicas=2, rank=0),
            "generator": torch.Generator(),
            "numbers": np.random.default_rng(1),
            "average": torch.optim.swa_utils.AveragedModel(model()),
        }

    saved = parts()
    loss = torch.ones(1, requires_grad=True)
    saved["scaler"].scale(loss).backward()
    saved["scaler"].update(4.0)
    saved["sampler"].set_epoch(5)
    saved["generator"].manual_seed(9)
    saved["numbers"].random(3)
    State(**saved).save(tmp_path / "state")
    loaded = parts()
    State(**loaded).load(tmp_path / "state")
    assert loaded["scaler"].state_dict() == saved["scaler"].state_dict()
    assert list(loaded["sampler"]) == list(saved["sampler"])
    assert loaded["numbers"].random() == saved["numbers"].random()
    assert torch.equal(
        torch.rand(3, generator=loaded["generator"]), torch.rand(3, generator=saved["generator"])
    )
    assert same(loaded["average"].state_dict(), saved["average"].state_dict())


def draws() -> list[float]:
    return [random.random(), float(np.random.rand()), float(torch.rand(1))]  # noqa: NPY002


def test_random_states_are_restored(tmp_path: Path) -> None:
    state = State(model=model())
    draws()
    state.save(tmp_path / "state")
    expected = draws()
    state.load(tmp_path / "state")
    assert draws() == expected


def test_keys_do_not_depend_on_wrappers_of_a_model(tmp_path: Path) -> None:
    net = model()
    State(model=nn.DataParallel(torch.compile(net))).save(tmp_path / "state")
    saved = torch.load(tmp_path / "state", weights_only=True)["parts"]["model"]
    assert list(saved) == list(net.state_dict())
    other = model()
    State(model=other).load(tmp_path / "state")
    assert same(other.state_dict(), net.state_dict())


def refusal(path: Path, **parts: Any) -> str:
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    with pytest.raises(OtherStateError) as caught:
        State(**parts).load(path)
    assert all(same(before[name], part.state_dict()) for name, part in parts.items())
    return str(caught.value)


def test_state_of_another_model_is_rejected_with_the_different_keys(tmp_path: Path) -> None:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    State(model=net, optimizer=optimizer).save(tmp_path / "state")

    wider = model(width=5)
    words = refusal(tmp_path / "state", model=wider, optimizer=torch.optim.SGD(wider.parameters()))
    assert "model has other shapes: 0.bias (here (5,), saved (4,))" in words
    assert "and 2 more" in words

    longer = nn.Sequential(*model(), nn.Linear(1, 1))
    words = refusal(
        tmp_path / "state", model=longer, optimizer=torch.optim.SGD(longer.parameters())
    )
    assert "model missing in the checkpoint: 3.bias, 3.weight" in words
    assert "optimizer has groups of [8] parameters here, of [6] in the checkpoint" in words

    shorter = nn.Sequential(*list(model())[:2])
    words = refusal(
        tmp_path / "state", model=shorter, optimizer=torch.optim.SGD(shorter.parameters())
    )
    assert "model unexpected in the checkpoint: 2.bias, 2.weight" in words

    assert "parts unexpected in the checkpoint: optimizer" in refusal(
        tmp_path / "state", model=model()
    )


def test_object_without_a_state_is_rejected_at_once() -> None:
    with pytest.raises(TypeError, match=r"sampler=list cannot be saved.*state_dict"):
        State(sampler=[1, 2])


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return pytest.fail, ("code of the file was run",)


@pytest.mark.parametrize(
    "content",
    [b"", b"not a checkpoint", pickle.dumps(Trap(), protocol=2), b"PK\x03\x04" + bytes(100)],
    ids=["empty", "text", "code", "zip"],
)
def test_damaged_file_executes_and_changes_nothing(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    net = model()
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(ValueError, match="cannot be read by torch"):
        State(model=net).load(tmp_path / "state")
    assert same(before, net.state_dict())


def test_file_with_code_is_not_executed(tmp_path: Path) -> None:
    torch.save({"format": 1, "parts": {"model": Trap()}}, tmp_path / "state")
    with pytest.raises(ValueError, match="cannot be read by torch"):
        State(model=model()).load(tmp_path / "state")


class Kept:
    """A component whose state contains a class of the script."""

    def __init__(self, value: int) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"own": Own(self.value), "plain": np.float64(self.value)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["own"].value


class Own:
    def __init__(self, value: int) -> None:
        self.value = value


def test_classes_of_the_script_are_allowed(tmp_path: Path) -> None:
    State(part=Kept(3)).save(tmp_path / "state")
    loaded = Kept(0)
    State(part=loaded).load(tmp_path / "state")
    assert loaded.value == 3
