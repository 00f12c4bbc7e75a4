"""Progressive lengths: every fourth iteration the loop lets the dataset give longer crops."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import understudy


class Windows(Dataset):
    def __init__(self, text, width):
        self.text = text
        self.width = width

    def __len__(self):
        return len(self.text) - 12

    def __getitem__(self, index):
        return self.text[index : index + self.width + 1]


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
windows = Windows(torch.randint(20, (300,)), width=3)
loader = DataLoader(windows, batch_size=4, sampler=DistributedSampler(windows))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(tokens):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


for tokens in job.batches(loader, steps=12):
    loss = train_step(tokens)
    trace.line(f"step {job.committed}", loss=loss, tokens=tokens)
    if job.committed % 4 == 0:
        windows.width += 3

trace.final(model=model, optimizer=optimizer)
