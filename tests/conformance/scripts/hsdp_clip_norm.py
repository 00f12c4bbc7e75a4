"""HSDP with clip_grad_norm_ on DTensor gradients: the norm is a collective over the mesh."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, mlp, nn, sharded_loader, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = fully_shard(mlp(8, 32, 1, nn.Tanh), mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 8), 5 * torch.randn(96, 1))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor()
    optimizer.step()
    return loss.item(), norm.item()


for batch in job.batches(loader, steps=12):
    loss, norm = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)
