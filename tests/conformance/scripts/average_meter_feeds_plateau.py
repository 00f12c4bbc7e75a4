"""An average meter of each rank's own losses, as in many examples; at the end of an epoch it feeds a plateau schedule."""

# ranks: 3
# group: unregistered state
# expect: told US1411 "epoch_meter"

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=0.3)
data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer, schedule=schedule)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
epoch_meter = AverageMeter()


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def mean_of_epoch():
    total = torch.tensor([epoch_meter.sum, epoch_meter.count], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


for epoch in range(3):
    sampler.set_epoch(epoch)
    epoch_meter.reset()
    for batch in job.batches(loader):
        loss = train_step(batch)
        epoch_meter.update(loss, len(batch[0]))
        trace.line(f"step {job.committed}", loss=loss, rate=optimizer.param_groups[0]["lr"])
    found = mean_of_epoch()
    schedule.step(found)
    trace.line(f"evaluation {epoch}", loss=found)

trace.final(model=model, optimizer=optimizer, schedule=schedule)
