"""Rank 0 draws the seed and broadcasts it; weights and streams come from it."""

# group: setup
# expect: bitwise

import random

from _common import DDP, dist, mlp, nn, torch
from _trace import Trace

import understudy

job = understudy.join()
seed = torch.zeros((), dtype=torch.int64)
if job.rank == 0:
    seed.fill_(random.Random(42).randrange(2**31))
dist.broadcast(seed, src=0)
torch.manual_seed(seed.item())
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(seed.item() + job.rank)
trace = Trace(job.rank)
trace.line("set-up", seed=seed.item())


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
