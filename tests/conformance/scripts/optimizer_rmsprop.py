"""RMSprop, centred and with momentum: three moments of each parameter."""

# ranks: 3
# group: optimizers
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 16, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, sequence):
        hidden, _ = self.gru(sequence)
        return self.out(hidden[:, -1])


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(Reader())
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.95, centered=True, momentum=0.8)
data = TensorDataset(torch.randn(96, 5, 6), torch.randn(96, 1))
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
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
