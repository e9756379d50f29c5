"""Loads the parts of torch that are otherwise loaded at their first use."""

import torch
import torch.distributed
import torch.nn.parallel
import torch.optim.lr_scheduler
import torch.utils.data

torch.set_num_threads(1)
torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
