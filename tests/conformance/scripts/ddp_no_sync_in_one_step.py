"""Accumulation inside one step: three micro-batches under no_sync, the fourth one reduces."""

# group: ddp
# expect: bitwise

from contextlib import nullcontext

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = mlp(8, 32, 1, nn.GELU)
model = DDP(net, bucket_cap_mb=0.0005)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(144, 8, 1)
loader = sharded_loader(data, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
PARTS = 4


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    total = 0.0
    for number, (x, y) in enumerate(zip(inputs.chunk(PARTS), targets.chunk(PARTS), strict=True)):
        with model.no_sync() if number < PARTS - 1 else nullcontext():
            loss = nn.functional.mse_loss(model(x), y) / PARTS
            loss.backward()
        total += loss.item()
    optimizer.step()
    return total


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
