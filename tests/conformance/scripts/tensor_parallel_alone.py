"""Tensor parallelism over all ranks (colwise, rowwise): every shard is on one rank only, and the script is warned."""

# ranks: 4
# group: parallel
# expect: told US4711

from _common import join_seeded, nn, torch
from _trace import Trace
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

job = join_seeded()
mesh = init_device_mesh("cpu", (job.world_size,), mesh_dim_names=("tensor",))
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)  # the same on every rank: no rank has a stream of its own
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.roll(1, 1))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
