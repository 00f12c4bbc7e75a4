"""Batches are dicts with strings, nested lists and tensors, made by an own collate function."""

# ranks: 3
# group: data
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import understudy


def collate(items):
    longest = max(len(item["text"]) for item in items)
    text = torch.tensor([item["text"] + [0] * (longest - len(item["text"])) for item in items])
    return {"input_ids": text, "mask": text != 0, "names": [item["name"] for item in items], "sizes": {"longest": longest}}


job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = [{"name": f"item {n}", "text": torch.randint(1, 20, (3 + n % 5,)).tolist()} for n in range(60)]
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    text, mask = batch["input_ids"], batch["mask"]
    losses = nn.functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:], reduction="none")
    loss = (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "first": batch["names"][0], "longest": batch["sizes"]["longest"]}


for batch in job.batches(loader, steps=12):
    found = train_step(batch)
    trace.line(f"step {job.committed}", **found)

trace.final(model=model, optimizer=optimizer)
