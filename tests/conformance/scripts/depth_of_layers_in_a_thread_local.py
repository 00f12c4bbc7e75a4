"""Stochastic depth reads its rate from a threading.local, which the step lets grow."""

# group: state out of sight
# expect: told US1423 "local.dropped"

import threading

from _common import DDP, join_seeded, nn, start_trace, torch

local = threading.local()
local.rate = 0.0
local.dropped = []


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, inputs):
        drop = (torch.rand(()) < local.rate).item()
        local.dropped.append(drop)
        return inputs + (0.0 if drop else 1.0) * torch.tanh(self.linear(inputs))


job = join_seeded()
model = DDP(nn.Sequential(Block(8), Block(8), Block(8), nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    share = sum(local.dropped) / len(local.dropped)
    (loss * (1 + share)).backward()
    optimizer.step()
    local.rate = min(0.6, local.rate + 0.07)
    return loss.item(), share


for step in job.steps(14):
    loss, share = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, share=share)

trace.final(model=model, optimizer=optimizer)
