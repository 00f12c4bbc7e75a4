"""A custom batch sampler groups samples of similar length and shuffles the batches with Python's random stream."""

# group: data
# expect: bitwise

import random

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, Dataset, Sampler


class Sentences(Dataset):
    def __init__(self, count):
        self.items = [torch.randint(1, 20, (4 + number * 5 % 9,)) for number in range(count)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class LikeLength(Sampler):
    def __init__(self, data, size, rank, ranks):
        mine = sorted(range(rank, len(data), ranks), key=lambda index: (len(data[index]), index))
        self.batches = [mine[start : start + size] for start in range(0, len(mine), size)]

    def __iter__(self):
        order = list(self.batches)
        random.shuffle(order)
        return iter(order)

    def __len__(self):
        return len(self.batches)


def collate(items):
    return nn.utils.rnn.pad_sequence(items, batch_first=True)


job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Sentences(60)
loader = DataLoader(data, batch_sampler=LikeLength(data, 4, job.rank, job.world_size), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(text):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten(), ignore_index=0)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
