"""HSDP over blocks under activation checkpointing: backward gathers the weights again and draws the same dropout."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import nn, square_mesh, start_trace, torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import fully_shard

import understudy

job = understudy.join()
mesh = square_mesh("replicate", "shard")


def block(width):
    return nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.2), nn.Linear(2 * width, width))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), *(checkpoint_wrapper(block(16)) for _ in range(3)), nn.Linear(16, 1))
for part in model[1:4]:
    fully_shard(part, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.pow(2).mean(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
