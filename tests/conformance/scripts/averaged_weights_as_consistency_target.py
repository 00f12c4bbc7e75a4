"""An own EMA class binds a dict of averaged weights anew behind each step; the loss pulls towards them."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


class EMA:
    def __init__(self, module, decay):
        self.module, self.decay = module, decay
        self.shadow = {name: p.detach().clone() for name, p in module.named_parameters()}

    def update(self):
        for name, p in self.module.named_parameters():
            self.shadow[name] = self.decay * self.shadow[name] + (1 - self.decay) * p.detach()


job = understudy.join()
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
ema = EMA(net, 0.8)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    with torch.no_grad():
        wanted = torch.func.functional_call(net, ema.shadow, (inputs,))
    output = model(inputs)
    loss = nn.functional.mse_loss(output, inputs.sum(1, keepdim=True)) + 0.5 * nn.functional.mse_loss(output, wanted)
    loss.backward()
    optimizer.step()
    ema.update()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, shadow=ema.shadow)
