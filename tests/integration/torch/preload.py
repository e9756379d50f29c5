"""What torch otherwise loads when a script first uses it."""

import torch
import torch.distributed
import torch.nn.parallel
import torch.optim.lr_scheduler
import torch.utils.data

torch.set_num_threads(1)
torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
