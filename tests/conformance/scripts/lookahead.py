"""Lookahead around Adam: slow weights in an object with a state_dict, taken over every fifth step."""

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


class Lookahead:
    def __init__(self, optimizer, every=5, alpha=0.5):
        self.optimizer = optimizer
        self.every, self.alpha = every, alpha
        self.count = 0
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.slow = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % self.every == 0:
            for slow, fast in zip(self.slow, self.parameters, strict=True):
                slow.lerp_(fast, self.alpha)
                fast.copy_(slow)

    def state_dict(self):
        return {"count": self.count, "slow": list(self.slow)}

    def load_state_dict(self, state):
        self.count = state["count"]
        for mine, given in zip(self.slow, state["slow"], strict=True):
            mine.copy_(given)


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
optimizer = Lookahead(adam)
data = TensorDataset(torch.randn(96, 8), torch.randn(96, 1))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, adam=adam, lookahead=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    adam.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, adam=adam, lookahead=optimizer)
