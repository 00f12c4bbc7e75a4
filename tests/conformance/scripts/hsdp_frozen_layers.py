"""Fine-tuning under HSDP: the body is frozen and sharded, the head is trained; half-way the last block is thawed."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
body = nn.Sequential(*(nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Dropout(0.1)) for _ in range(3)))
model = nn.Sequential(body, nn.Linear(12, 3))
body.requires_grad_(False)
for block in body:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    if step == 6:
        body[2].requires_grad_(True)
    inputs = torch.randn(6, 12)
    loss = nn.functional.cross_entropy(model(inputs), inputs[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
