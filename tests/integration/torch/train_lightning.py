"""A script for Lightning that prints the samples of each step, and the weights at the end.

Before each step it takes a byte from its standard input, until that is closed.
"""

import argparse
import hashlib
import os
import warnings

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from rota_trainer.lightning import Loader, RotaCallback

EPOCHS = 4
N_SAMPLES = 32


class Model(LightningModule):
    def __init__(self, *, has_dropout: bool) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(2, 8), nn.Dropout(0.2 if has_dropout else 0.0), nn.Linear(8, 1)
        )

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        os.read(0, 1)
        numbers, x = batch
        say(f"step {self.current_epoch} {numbers.tolist()}")
        loss = self.layers(x).square().mean()
        self.log("loss", loss, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--every-step", action="store_true")
    parser.add_argument("--plain-loader", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seed_everything(3, verbose=False)
    torch.set_num_threads(1)
    x = torch.randn(N_SAMPLES, 2, generator=torch.Generator().manual_seed(5))
    samples = TensorDataset(torch.arange(N_SAMPLES), x)
    kind = Loader if options.every_step and not options.plain_loader else DataLoader
    loader = kind(samples, batch_size=8, shuffle=True)
    # Only worker 0 saves with Lightning, and with it only its own random state.
    model = Model(has_dropout=options.workers == 1)
    rota = RotaCallback(every_step=options.every_step)
    trainer = Trainer(
        max_epochs=options.epochs,
        callbacks=[rota],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        devices=options.workers,
        strategy="ddp" if options.workers > 1 else "auto",
    )
    trainer.fit(model, loader, ckpt_path=rota.newest())
    weights = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    say(f"weights {hashlib.sha256(weights).hexdigest()}")


if __name__ == "__main__":
    main()
