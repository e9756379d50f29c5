"""Grows and shrinks while it trains. Without rota, `python examples/live_ddp.py` trains with one
worker. As a job it needs the mode `live` and a range of workers.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import live as live_training


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    inputs = torch.randn(2048, 16)
    data = TensorDataset(inputs, inputs.pow(2).sum(1, keepdim=True))
    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)

    run = trainer.start()
    live = live_training(run, model=net, optimizer=optimizer, dataset=data, batch_size=64)
    for epoch in live.epochs(options.epochs):
        for x, y in live.batches():
            with live.step():
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(live.model(x), y)
                loss.backward()
                optimizer.step()
                run.report(loss=loss.item())
        print(f"epoch {epoch + 1} is done, by {live.size} workers", flush=True)


if __name__ == "__main__":
    main()
