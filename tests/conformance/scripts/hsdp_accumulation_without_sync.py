"""HSDP that accumulates three parts of a batch and reduces gradients with the last (set_requires_gradient_sync)."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, nn, random_dataset, sharded_loader, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

PARTS = 3

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 1))
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(192, 8, 1)
loader = sharded_loader(data, 6)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    total = 0.0
    for number, (inputs, targets) in enumerate(zip(*(part.chunk(PARTS) for part in batch), strict=True)):
        model.set_requires_gradient_sync(number == PARTS - 1)
        loss = nn.functional.mse_loss(model(inputs), targets) / PARTS
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
