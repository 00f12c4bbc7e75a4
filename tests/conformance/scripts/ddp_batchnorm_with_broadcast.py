"""BatchNorm with DDP's defaults: rank 0's running statistics are broadcast before each forward."""

# group: ddp
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24, momentum=0.2), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
model = DDP(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
held_out = torch.randn(12, 8), torch.randn(12, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
