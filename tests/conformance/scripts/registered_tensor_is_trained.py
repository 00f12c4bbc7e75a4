"""A temperature that is a bare tensor, not part of a module: registered, with a gradient that the script averages itself."""

# ranks: 3
# group: state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 6)))
temperature = torch.tensor([0.0], requires_grad=True)
prototypes = torch.randn(4, 6, requires_grad=True)
loose = [temperature, prototypes]
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": loose, "lr": 3e-2}], lr=1e-2)
data = TensorDataset(torch.randn(96, 8), torch.randint(4, (96,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, temperature=temperature, prototypes=prototypes)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    logits = model(inputs) @ prototypes.T * temperature.exp()
    loss = nn.functional.cross_entropy(logits, labels)
    loss.backward()
    for tensor in loose:
        dist.all_reduce(tensor.grad)
        tensor.grad /= job.world_size
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, temperature=temperature)

trace.final(model=model, optimizer=optimizer, temperature=temperature, prototypes=prototypes)
