"""HSDP that scatters gradients with every part of a batch and all-reduces among replicas with the last (set_requires_all_reduce)."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 24), nn.SiLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.SiLU(), nn.Linear(24, 1))
for index in (0, 3):
    fully_shard(model[index], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    total = 0.0
    for last in (False, False, True):
        model.set_requires_all_reduce(last)
        inputs = torch.randn(4, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True)) / 3
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
