"""A custom infinite sampler permutes with its own numpy Generator, which is registered."""

# group: data
# expect: bitwise

import numpy
from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, Sampler


class Endless(Sampler):
    def __init__(self, count, rank, ranks, stream):
        self.count, self.rank, self.ranks, self.stream = count, rank, ranks, stream

    def __iter__(self):
        while True:
            yield from self.stream.permutation(self.count)[self.rank :: self.ranks].tolist()


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(30, 8, 1)
stream = numpy.random.default_rng(5)
loader = DataLoader(data, batch_size=4, sampler=Endless(30, job.rank, job.world_size, stream))
job.register(model=model, optimizer=optimizer, stream=stream)
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

trace.final(model=model, optimizer=optimizer, stream=stream)
