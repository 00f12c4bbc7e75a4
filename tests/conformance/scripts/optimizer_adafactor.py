"""Adafactor: its moments are kept as rows and columns of matrices, whole for vectors."""

# ranks: 3
# group: optimizers
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

VOCABULARY, WIDTH, LENGTH = 32, 16, 8

job = understudy.join()
torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(WIDTH, nhead=2, dim_feedforward=32, dropout=0.1, batch_first=True)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), layer, nn.Linear(WIDTH, VOCABULARY)))
optimizer = torch.optim.Adafactor(model.parameters(), lr=2e-2, weight_decay=0.01)
text = torch.randint(VOCABULARY, (600,))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


def draw():
    starts = torch.randint(len(text) - LENGTH - 1, (4,)).tolist()
    return torch.stack([text[s : s + LENGTH] for s in starts]), torch.stack([text[s + 1 : s + LENGTH + 1] for s in starts])


@job.step
def train_step():
    inputs, targets = draw()
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
