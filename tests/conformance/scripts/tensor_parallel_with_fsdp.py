"""Tensor parallelism times FSDP on a 2-D mesh: both dimensions shard, so that no rank has a replica."""

# ranks: 4
# group: parallel
# expect: told US4711

from _common import join_seeded, nn, square_mesh, torch
from _trace import Trace
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

job = join_seeded()
mesh = square_mesh("data", "tensor")
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["data"])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + mesh.get_local_rank("data"))
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.roll(1, 1))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
