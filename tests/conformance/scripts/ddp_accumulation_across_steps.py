"""Accumulation over the loop's iterations: every fourth one reduces and steps, the others only add under no_sync."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
EVERY = 4


def backward(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets) / EVERY
    loss.backward()
    return loss.item()


@job.step
def add_step(batch):
    with model.no_sync():
        return backward(batch)


@job.step
def last_step(batch):
    loss = backward(batch)
    optimizer.step()
    optimizer.zero_grad()
    return loss


for batch in job.batches(loader, steps=16):
    loss = last_step(batch) if job.committed % EVERY == EVERY - 1 else add_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
