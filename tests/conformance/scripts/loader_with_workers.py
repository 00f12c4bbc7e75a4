"""A DataLoader with two persistent worker processes that augment with torch, numpy and random."""

# group: data
# expect: told US1332

import random

import numpy
from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, Dataset, DistributedSampler


class Augmented(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        item = self.items[index] + 0.1 * torch.randn(8)
        if random.random() < 0.5:
            item = item.flip(0)
        return item * float(numpy.random.uniform(0.9, 1.1))


def seed_worker(number):
    seed = torch.initial_seed() % 2**32
    numpy.random.seed(seed)
    random.seed(seed)


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Augmented(torch.randn(60, 8))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler, num_workers=2, persistent_workers=True, worker_init_fn=seed_worker)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
