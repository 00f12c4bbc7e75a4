"""A dataset augments from its own random.Random, which is not registered: that of a newcomer starts at its seed."""

# group: data
# expect: bitwise

import random

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import Dataset


class Augmented(Dataset):
    def __init__(self, items, seed):
        self.items = items
        self.stream = random.Random(seed)

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index].roll(self.stream.randrange(8)) * self.stream.uniform(0.9, 1.1)


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Augmented(torch.randn(60, 8), 3 + job.rank)
loader = sharded_loader(data, 4)
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
