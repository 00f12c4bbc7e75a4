"""HSDP whose evaluation leaves the root's weights gathered (torch's default), and every loss occurs in the step right after one."""

# ranks: 4
# group: fsdp
# expect: bitwise
# kills: backward@3:1 reduced@6:2 vote@9:0

from _common import dist, join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1))
held_out = torch.randn(32, 8)
for index in (1, 4):
    fully_shard(model[index], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        total = nn.functional.mse_loss(model(held_out), held_out.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(total)
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
