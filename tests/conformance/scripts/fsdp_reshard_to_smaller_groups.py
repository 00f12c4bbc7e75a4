"""FSDP without replicas reshards from four ranks to groups of two after forward: no rank has a replica."""

# ranks: 4
# group: fsdp
# expect: told US4711

from _common import join_seeded, nn, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 1))
for index in (0, 3):
    fully_shard(model[index], reshard_after_forward=2)
fully_shard(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
