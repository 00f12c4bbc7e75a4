"""An optimizer that the script wrote itself: signs of a momentum, with a python counter in its state."""

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


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, parameters, lr, beta=0.9, every=4):
        super().__init__(parameters, {"lr": lr, "beta": beta, "every": every})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["count"] = 0
                    state["momentum"] = torch.zeros_like(parameter)
                state["count"] += 1
                state["momentum"].lerp_(parameter.grad, 1 - group["beta"])
                step = state["momentum"].sign() if state["count"] % group["every"] else state["momentum"]
                parameter.add_(step, alpha=-group["lr"])


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 1)))
optimizer = SignMomentum(model.parameters(), lr=3e-3)
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
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
