"""Trains a small image model on generated pictures, with one worker or several.

python examples/image_ddp.py --epochs 5
rota submit --gpus 2 --gpus-per-worker 1 --epochs 5 -- python examples/image_ddp.py --epochs 5
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import State


def main() -> None:
    options = parse()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

    run = trainer.start()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    pictures = make_pictures(options.pictures)
    sampler = DistributedSampler(pictures, seed=options.seed) if dist.is_initialized() else None
    loader = DataLoader(pictures, batch_size=16, sampler=sampler, shuffle=sampler is None)
    model = make_model().to(device)
    parallel = DistributedDataParallel(model) if dist.is_initialized() else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs)
    state = State(run, model=parallel, optimizer=optimizer, scheduler=scheduler, sampler=sampler)
    run.restore(state.load)

    for epoch in run.epochs(options.epochs, save=state.save):
        if sampler is not None:
            sampler.set_epoch(epoch)
        n_seen, n_right, total_loss = 0, 0, 0.0
        for picture, kind in run.steps(loader, save=state.save):
            guess = parallel(picture.to(device))
            loss = nn.functional.cross_entropy(guess, kind.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            n_seen += len(kind)
            total_loss += loss.item() * len(kind)
            n_right += int((guess.argmax(1).cpu() == kind).sum())
            time.sleep(options.seconds_per_epoch / len(loader))
        scheduler.step()
        if n_seen:
            run.report(loss=total_loss / n_seen, accuracy=n_right / n_seen)
        print(f"epoch {epoch + 1} is done", flush=True)

    if options.weights and run.environment.rank == 0:
        torch.save(model.state_dict(), options.weights)


def make_model() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 3 * 3, 4),
    )


def make_pictures(n_pictures: int) -> TensorDataset:
    """Noise with one bright quarter. The model learns which quarter it is."""
    chance = torch.Generator().manual_seed(1)
    kinds = torch.arange(n_pictures) % 4
    pictures = torch.rand(n_pictures, 1, 16, 16, generator=chance)
    for picture, kind in zip(pictures, kinds.tolist(), strict=True):
        top, left = 8 * (kind // 2), 8 * (kind % 2)
        picture[0, top : top + 8, left : left + 8] += 0.5
    return TensorDataset(pictures, kinds)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--pictures", type=int, default=256)
    parser.add_argument("--seconds-per-epoch", type=float, default=0.0, help="added, to see it run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--weights", default="", help="file for the weights at the end")
    return parser.parse_args()


if __name__ == "__main__":
    main()
    if dist.is_initialized():
        dist.destroy_process_group()
