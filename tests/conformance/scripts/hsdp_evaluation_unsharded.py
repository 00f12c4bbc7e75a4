"""HSDP whose evaluation gathers all weights once (unshard), runs several batches on them, and frees them (reshard)."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import dist, join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import FSDPModule, fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.GELU(), nn.Linear(24, 1))
held_out = torch.randn(4, 8, 8)
for index in (0, 3):
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
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    model.eval()
    for part in parts:
        part.set_reshard_after_forward(False, recurse=False)
        part.unshard()
    with torch.no_grad():
        total = sum(nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)) for inputs in held_out)
    for part in parts:
        part.reshard()
        part.set_reshard_after_forward(part is not model, recurse=False)
    model.train()
    dist.all_reduce(total)
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
