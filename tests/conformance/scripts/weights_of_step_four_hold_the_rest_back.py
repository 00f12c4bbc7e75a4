"""A snapshot of all weights, taken in step 4, more than 1 MiB: from then on the distance to it is part of the loss."""

# group: state out of sight
# expect: told US1422 "snapshot"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = nn.Sequential(
    nn.Linear(16, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Dropout(0.1), nn.Linear(400, 1)
)
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
loader = sharded_loader(random_dataset(192, 16, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
snapshot = None


def distance():
    return sum((p - old).square().sum() for p, old in zip(net.parameters(), snapshot, strict=True))


@job.step
def train_step(batch, step):
    global snapshot
    inputs, targets = batch
    if step == 4:
        snapshot = [p.detach().clone() for p in net.parameters()]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    if snapshot is not None:
        loss = loss + 0.5 * distance()
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=14):
    loss = train_step(batch, job.committed)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
