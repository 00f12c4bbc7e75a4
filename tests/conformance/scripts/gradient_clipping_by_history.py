"""Gradients are clipped at a quantile of the norms so far, which an object with a state_dict remembers."""

# ranks: 3
# group: state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy


class Clipper:
    def __init__(self, share):
        self.share = share
        self.norms = []

    def clip(self, parameters):
        norm = nn.utils.get_total_norm([p.grad for p in parameters]).item()
        self.norms.append(norm)
        limit = sorted(self.norms)[int(self.share * (len(self.norms) - 1))]
        nn.utils.clip_grads_with_norm_(parameters, limit, torch.tensor(norm))
        return limit

    def state_dict(self):
        return {"norms": list(self.norms)}

    def load_state_dict(self, state):
        self.norms = list(state["norms"])


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
clipper = Clipper(0.3)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, clipper=clipper)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    limit = clipper.clip(list(model.parameters()))
    optimizer.step()
    return loss.item(), limit


for batch in job.batches(loader, steps=12):
    loss, limit = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, limit=limit)

trace.final(model=model, optimizer=optimizer, clipper=clipper)
