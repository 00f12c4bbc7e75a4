"""HSDP that gathers the next block's weights early, forward and backward (set_modules_to_forward_prefetch)."""

# ranks: 4
# group: fsdp
# expect: bitwise

import itertools

from _common import join_seeded, mlp, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
blocks = [mlp(12, 24, 12, nn.ReLU) for _ in range(4)]
model = nn.Sequential(*blocks)
for block in blocks:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
for block, following in itertools.pairwise(blocks):
    block.set_modules_to_forward_prefetch([following])
    following.set_modules_to_backward_prefetch([block])
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    model.unshard(async_op=True)
    inputs = torch.randn(6, 12)
    loss = nn.functional.mse_loss(model(inputs), inputs.roll(1, 1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
