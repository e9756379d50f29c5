"""The model of all training scripts: square layers whose width sets the size."""

from __future__ import annotations

import os

import torch
from torch import nn
from torch.utils.data import TensorDataset

N_INPUTS = 16
N_SAMPLES = 4096
BATCH = 8


def network() -> nn.Sequential:
    """A model of four layers with the width of the variable `WIDTH`."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    width = int(os.environ["WIDTH"])
    square = [nn.Linear(width, width) for _ in range(4)]
    return nn.Sequential(nn.Linear(N_INPUTS, width), *square, nn.Linear(width, 1))


def samples() -> TensorDataset:
    inputs = torch.randn(N_SAMPLES, N_INPUTS, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True))
