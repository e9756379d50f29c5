"""Trains with plain DDP. On a stop request it saves after the step; the daemon starts it again."""

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import rota_trainer as trainer
from benchmarks.elastic.network import BATCH, network, samples
from benchmarks.elastic.stamps import STEP_S, Stamps, began_s
from rota_trainer.torch import State


def main() -> None:
    stamps = Stamps()
    net = network()
    optimizer = torch.optim.Adam(net.parameters())
    stamps.put("ready", began_s())
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(net)
    run = trainer.start()
    state = State(run, model=model, optimizer=optimizer)
    run.restore(state.load)
    for _ in run.epochs(10**6):
        for x, y in run.steps(DataLoader(samples(), batch_size=BATCH // size), save=state.save):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            time.sleep(STEP_S)
            stamps.put("step", size, rank)


if __name__ == "__main__":
    main()
