"""Undo of a step, learning rates and loading of a live training state."""

import pytest

torch = pytest.importorskip("torch")

from rota_trainer.elastic.state import TrainingState, on_cpu  # noqa: E402
from rota_trainer.torch import OtherStateError  # noqa: E402


def make_parts(width: int = 4) -> TrainingState:
    net = torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.BatchNorm1d(width))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=1)
    named = {"model": net, "optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    return TrainingState(named)


def train(parts: TrainingState, *, applies: bool) -> None:
    """A step, up to where its gradients are applied or beyond."""
    model, optimizer, scaler = (parts.named[name] for name in ("model", "optimizer", "scaler"))
    loss = model(torch.randn(5, 3)).pow(2).sum()
    scaler.scale(loss).backward()
    if applies:
        scaler.step(optimizer)
        scaler.update()


def test_restored_snapshot_undoes_a_step() -> None:
    parts = make_parts()
    train(parts, applies=True)
    before, snapshot = on_cpu(parts.state_dict()), parts.snapshot()
    drawn = torch.rand(3)
    parts.restore_snapshot(snapshot)
    train(parts, applies=False)
    parts.named["scheduler"].step()
    parts.named["scaler"].update(8.0)
    parts.restore_snapshot(snapshot)
    again = parts.state_dict()
    assert str(on_cpu(again)) == str(before)
    assert torch.equal(torch.rand(3), drawn)
    assert all(each.grad is None for each in parts.named["model"].parameters())


def test_learning_rates_are_scaled_and_restored() -> None:
    parts = make_parts()
    scheduler, groups = parts.named["scheduler"], parts.named["optimizer"].param_groups
    parts.scale_rates(4.0)
    assert groups[0]["lr"] == pytest.approx(0.4)
    parts.named["optimizer"].step()
    scheduler.step()
    assert groups[0]["lr"] == pytest.approx(0.2)
    parts.scale_rates(1.0)
    assert groups[0]["lr"] == pytest.approx(0.05)
    assert scheduler.base_lrs == pytest.approx([0.1])


def test_state_is_loaded_completely_or_not_at_all() -> None:
    parts, other = make_parts(), make_parts(width=5)
    train(parts, applies=True)
    parts.progress.global_step = 7
    copied = on_cpu(parts.state_dict())
    newcomer = make_parts()
    newcomer.load(copied)
    assert str(on_cpu(newcomer.state_dict())) == str(copied)
    before = str(other.state_dict())
    with pytest.raises(OtherStateError, match="other shapes"):
        other.load(copied)
    assert str(other.state_dict()) == before
