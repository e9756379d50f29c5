"""A training script with all kinds of state, which prints the samples that it trains on.

Before each step it takes a byte from its standard input, so that a test decides how far it goes;
once that is closed, it continues without waiting.
"""

import argparse
import hashlib
import os
import random
import signal
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import rota_trainer as trainer
from rota_trainer.torch import State

N_SAMPLES = 64
BATCH = 8


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    rank, n_workers = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if n_workers > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{options.meet}", rank=rank, world_size=n_workers
        )
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(options.seed + rank)

    run = trainer.start()
    samples = make_samples()
    sampler = DistributedSampler(samples, seed=7) if n_workers > 1 else None
    loader = DataLoader(
        samples,
        batch_size=BATCH,
        sampler=sampler,
        shuffle=sampler is None,
        num_workers=options.loaders,
    )
    bare = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1)
    )
    model = DistributedDataParallel(bare) if n_workers > 1 else bare
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    total = options.epochs * len(loader)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=total)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=5)
    state = State(
        run,
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
        scaler=scaler,
        sampler=sampler,
    )
    run.restore(state.load)
    n_steps = 0
    say(f"begins {run.epochs_done} {run.steps_done}")

    for epoch in run.epochs(options.epochs, save=state.save):
        if sampler is not None:
            sampler.set_epoch(epoch)
        save = state.save if options.every_step else None
        for numbers, x, y in run.steps(loader, save=save):
            os.read(0, 1)
            time.sleep(options.pause_s)
            noise = random.random() + float(np.random.rand())  # noqa: NPY002 - the same
            loss = nn.functional.mse_loss(model(x + 0.01 * noise), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            run.report(loss=loss)
            n_steps += 1
            if n_steps == options.term_after:
                os.kill(os.getpid(), signal.SIGTERM)
            say(f"step {epoch} {','.join(str(number) for number in numbers.tolist())}")
    say(f"ends {fingerprint(bare)} {fingerprint(optimizer)} {scheduler.get_last_lr()[0]!r}")


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())


def make_samples() -> TensorDataset:
    chance = torch.Generator().manual_seed(3)
    x = torch.randn(N_SAMPLES, 4, generator=chance)
    return TensorDataset(torch.arange(N_SAMPLES), x, x.sum(1, keepdim=True))


def fingerprint(part: nn.Module | torch.optim.Optimizer) -> str:
    """A hash of all bytes of the tensors."""
    digest = hashlib.sha256()
    held = part.state_dict() if isinstance(part, nn.Module) else part.state_dict()["state"]
    for key in sorted(held, key=str):
        tensors = held[key].values() if isinstance(held[key], dict) else [held[key]]
        for tensor in tensors:
            digest.update(f"{key}".encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--loaders", type=int, default=0)
    parser.add_argument("--every-step", action="store_true")
    parser.add_argument("--meet", default="")
    parser.add_argument("--term-after", type=int, default=0)
    parser.add_argument("--pause-s", type=float, default=0.0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
