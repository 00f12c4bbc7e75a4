"""A RandomSampler with its own torch.Generator over the rank's part of the data."""

# group: data
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, RandomSampler, Subset

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(60, 8, 1)
mine = Subset(data, range(job.rank, 60, job.world_size))
loader = DataLoader(mine, batch_size=4, sampler=RandomSampler(mine, generator=torch.Generator().manual_seed(7 + job.rank)))
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


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
