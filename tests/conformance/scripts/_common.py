"""What most scripts of the suite share, so that each shows the one feature that it is about.

    from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = random_dataset(96, 8, 1)
    loader = sharded_loader(data, 4)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

The names that nearly every script imports (`torch`, `nn`, `dist`, `DDP`) come from here, too: any other import names something that the
script is about.

Understudy's census looks at the script itself: its globals, its frames, its source. It treats every module of the script's folder in the
same way, this one included. Read these rules before you add anything here:

1. No state: no global that changes, no cache, no object that remembers a call. It would be state of each script that imports this module.
2. No part of the training: the loop, the step, `job.register` and every assignment stay in the script, under the script's own names.
3. No attribute is set here (`self.count = 0`): a notice that names a line searches all modules of the script for that attribute.
4. The order of random draws is fixed. Each docstring states what its function draws; another order changes every trace.
"""

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

__all__ = [
    "DDP",
    "DataLoader",
    "TensorDataset",
    "dist",
    "join_seeded",
    "mlp",
    "nn",
    "random_dataset",
    "sharded_loader",
    "square_mesh",
    "start_trace",
    "torch",
]


def join_seeded():
    """Joins the job and seeds torch with 0: models and data that are made next are the same on every rank."""
    job = understudy.join()
    torch.manual_seed(0)
    return job


def start_trace(job):
    """Seeds torch with 1 + the rank, so that each rank draws its own numbers while it trains, and returns the rank's `Trace`."""
    torch.manual_seed(1 + job.rank)
    return Trace(job.rank)


def mlp(inputs, hidden, outputs, activation):
    """Returns two linear layers with an activation and a dropout of 0.1 between them. Draws the first layer's weights, then the other's."""
    return nn.Sequential(nn.Linear(inputs, hidden), activation(), nn.Dropout(0.1), nn.Linear(hidden, outputs))


def random_dataset(count, inputs, targets):
    """Returns `count` samples: a vector of `inputs` numbers and one of `targets` numbers. Draws all inputs, then all targets."""
    return TensorDataset(torch.randn(count, inputs), torch.randn(count, targets))


def sharded_loader(data, batch_size):
    """Returns a `DataLoader` that gives each rank its share of `data`. Draws nothing; each iteration over it draws a seed, as always."""
    return DataLoader(data, batch_size=batch_size, sampler=DistributedSampler(data))


def square_mesh(rows, columns):
    """Returns a mesh of two by two ranks; `rows` and `columns` are the names of its dimensions. Draws nothing."""
    return init_device_mesh("cpu", (2, 2), mesh_dim_names=(rows, columns))
