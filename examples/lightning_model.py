"""Trains a small model with Lightning and rota's callback.

python examples/lightning_model.py --epochs 5
rota submit --gpus 1 --epochs 5 -- python examples/lightning_model.py --epochs 5
"""

import argparse
import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import nn
from torch.utils.data import TensorDataset

from rota_trainer.lightning import Loader, RotaCallback


def main() -> None:
    options = parse()
    seed_everything(options.seed, verbose=False)
    torch.set_num_threads(1)
    rota = RotaCallback(every_step=True)
    loader = Loader(make_points(options.points), batch_size=32, shuffle=True)
    model = Rings(pause_s=options.seconds_per_epoch / len(loader))
    trainer = Trainer(
        max_epochs=options.epochs,
        callbacks=[rota],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="auto",
        devices=1,
    )
    trainer.fit(model, loader, ckpt_path=rota.newest())
    if options.weights:
        torch.save(model.state_dict(), options.weights)


class Rings(LightningModule):
    """Separates points inside a ring from points outside."""

    def __init__(self, pause_s: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
        self._pause_s = pause_s

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        points, is_inside = batch
        guess = self.layers(points).squeeze(1)
        loss = nn.functional.binary_cross_entropy_with_logits(guess, is_inside)
        self.log("loss", loss, on_step=False, on_epoch=True)
        time.sleep(self._pause_s)
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch + 1} is done", flush=True)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


def make_points(n_points: int) -> TensorDataset:
    points = torch.randn(n_points, 2, generator=torch.Generator().manual_seed(1))
    return TensorDataset(points, (points.norm(dim=1) < 1).float())


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="added, to see it run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="", help="file for the weights at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
