"""Trains with plain DDP under torchrun, without rota. Saves every second and resumes."""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from benchmarks.elastic.network import BATCH, network, samples
from benchmarks.elastic.stamps import STEP_S, Stamps, began_s

SAVE_EVERY_S = 1.0
CHECKPOINT = Path(os.environ["ROTA_CHECKPOINT_DIR"]) / "state.pt"


def main() -> None:
    stamps = Stamps()
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    stamps.put("ready", began_s())
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if CHECKPOINT.exists():
        state = torch.load(CHECKPOINT, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
    model = DistributedDataParallel(net)
    saved_s = time.monotonic()
    while True:
        for x, y in DataLoader(samples(), batch_size=BATCH // size):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(STEP_S)
            stamps.put("step", size, rank)
            if rank == 0 and time.monotonic() - saved_s > SAVE_EVERY_S:
                save({"net": net.state_dict(), "optimizer": optimizer.state_dict()})
                saved_s = time.monotonic()


def save(state: dict[str, object]) -> None:
    beside = CHECKPOINT.with_suffix(".new")
    torch.save(state, beside)
    beside.replace(CHECKPOINT)


if __name__ == "__main__":
    main()
