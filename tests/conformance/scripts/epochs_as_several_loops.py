"""Each epoch is its own loop over job.batches, with an evaluation after it, as most scripts are written."""

# group: data
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(48, 8, 1)
held_out = torch.randn(30, 8), torch.randn(30, 1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
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
    inputs, targets = (part[job.rank :: job.world_size] for part in held_out)
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), targets)
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)
    trace.line(f"evaluation {epoch}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
