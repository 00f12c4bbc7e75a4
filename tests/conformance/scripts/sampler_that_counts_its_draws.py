"""Each epoch is its own loop, over a sampler whose order depends on how much it has given, and how often it was exhausted."""

# group: data
# expect: bitwise
# kills: forward@2:1 evaluation@4:2 between@4:0 backward@6:0 evaluation@8:1 forward@9:2 between@11:1

from _common import DDP, dist, join_seeded, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, Sampler


class Counting(Sampler):
    def __init__(self, size, rank, ranks):
        self.size, self.rank, self.ranks = size, rank, ranks
        self.given = self.passes = 0

    def __len__(self):
        return self.size // self.ranks

    def __iter__(self):
        for number in range(len(self)):
            self.given += 1
            yield (self.rank + self.ranks * (number * 5 + self.given // len(self) + 7 * self.passes)) % self.size
        self.passes += 1


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(48, 8, 1)
held_out = torch.randn(30, 8), torch.randn(30, 1)
sampler = Counting(len(data), job.rank, job.world_size)
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
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)
    trace.line(f"evaluation {epoch}", loss=evaluate(), given=sampler.given, passes=sampler.passes)

trace.final(model=model, optimizer=optimizer)
