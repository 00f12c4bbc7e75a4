"""HSDP with CPUOffloadPolicy: shards, gradients and moments live on the host."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, mlp, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = mlp(8, 24, 1, nn.GELU)
fully_shard(model, mesh=mesh, offload_policy=CPUOffloadPolicy(pin_memory=False))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
