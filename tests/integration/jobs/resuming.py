"""Goes on from a snapshot if there is one, and writes it again in a section after each epoch. With "given": only on request."""

from __future__ import annotations

import sys

import torch
from support import fault, final, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import understudy

job = understudy.join()
seed(5)
path, first = folder / "snapshot.pt", 0
net = nn.Linear(8, 8)
data = TensorDataset(torch.randn(24, 8))
if path.exists() and "given" not in sys.argv:
    snapshot = torch.load(path)
    net.load_state_dict(snapshot["model"])
    first = snapshot["epoch"] + 1
model = DistributedDataParallel(net)
optimizer = torch.optim.Adam(model.parameters())
sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer)


@job.step
def train(batch: list[torch.Tensor]) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(batch[0]).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "after backward")
    optimizer.step()
    return loss.detach()


@job.section
def save(epoch: int) -> None:
    if job.rank == 0:
        torch.save({"model": net.state_dict(), "epoch": epoch}, path)


for epoch in range(first, 3):
    sampler.set_epoch(epoch)
    for batch in job.batches(loader):
        log(job, "loss", train(batch))
    save(epoch)
final(job, model=model, optimizer=optimizer)
