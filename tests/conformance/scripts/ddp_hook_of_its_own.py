"""A hook that the script wrote: it averages gradients, and damps them by a count of its calls that no state_dict knows."""

# ranks: 3
# group: ddp
# expect: refused "has the communication hook"

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Damping:
    def __init__(self):
        self.calls = 0


def damped_average(damping, bucket):
    damping.calls += 1
    factor = min(1.0, damping.calls / 20) / dist.get_world_size()
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0].mul_(factor))


job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
model = DistributedDataParallel(net, bucket_cap_mb=0.0005)
damping = Damping()
model.register_comm_hook(damping, damped_average)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, calls=damping.calls)

trace.final(model=model, optimizer=optimizer)
