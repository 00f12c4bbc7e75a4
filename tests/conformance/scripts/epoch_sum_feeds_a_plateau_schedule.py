"""main() sums the losses of an epoch in a local name, and the sum over the length of the loader feeds a plateau schedule."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


def main():
    job = understudy.join()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=0.2)
    data = TensorDataset(torch.randn(48, 8), torch.randn(48, 1))
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    job.register(model=model, optimizer=optimizer, schedule=schedule)
    torch.manual_seed(1 + job.rank)
    trace = Trace(job.rank)

    @job.step
    def train_step(batch):
        inputs, targets = batch
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        return mean.item() / job.world_size

    for epoch in range(4):
        sampler.set_epoch(epoch)
        running = 0.0
        for batch in job.batches(loader):
            loss = train_step(batch)
            running += loss
            trace.line(f"step {job.committed}", loss=loss, rate=optimizer.param_groups[0]["lr"])
        schedule.step(running / len(loader))

    trace.final(model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    main()
