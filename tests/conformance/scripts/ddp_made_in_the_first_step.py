"""A trainer that wraps its model in DDP lazily, when the first batch comes."""

# ranks: 3
# group: ddp
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Trainer:
    def __init__(self, net, optimizer):
        self.net = net
        self.optimizer = optimizer
        self.parallel = None

    def train(self, batch):
        if self.parallel is None:
            self.parallel = DistributedDataParallel(self.net, bucket_cap_mb=0.0005)
        inputs, targets = batch
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.parallel(inputs), targets)
        loss.backward()
        self.optimizer.step()
        return loss.item()


job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
trainer = Trainer(net, torch.optim.AdamW(net.parameters(), lr=1e-2))
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(net=net, optimizer=trainer.optimizer)
torch.manual_seed(1 + job.rank)
train_step = job.step(trainer.train)
trace = Trace(job.rank)

for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(net=net, optimizer=trainer.optimizer)
