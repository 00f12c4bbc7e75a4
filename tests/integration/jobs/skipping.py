"""Checkpoints that fail and that training can do without: on one rank while the other waits for it or has voted, on both, in torch's
distributed checkpoints, and together with a loss. With "leaves out" the script does not try to write those."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from support import Counter, fault, final, folder, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed

import understudy

TRIES = sys.argv[2] == "tries"
BEFORE_THE_COLLECTIVE = {8: (0,), 24: (0, 1), 32: (0,)}  # by committed steps: the ranks on which it fails
AFTER_THE_COLLECTIVE = {16: (1,)}
DISTRIBUTED = 28
LEFT_OUT = () if TRIES else (8, 16, 24, 28, 32)

job = understudy.join()
seed(7)
model = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
optimizer = torch.optim.Adam(model.parameters())
written = Counter()
seed(8 + job.rank)
job.register(model=model, optimizer=optimizer, written=written)


@job.step
def train() -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = model(torch.randn(4, 8)).square().mean()
    loss.backward()  # type: ignore[no-untyped-call]
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    total = loss.detach().clone()
    dist.all_reduce(total)  # a newcomer may have to return another rank's
    optimizer.step()
    return total


@job.section(on_error="report")
def save() -> float:
    """What it has changed by then is put back."""
    written.count += 1
    model.eval()
    drawn = torch.rand(1)
    fault(job, "saving")
    if job.rank in BEFORE_THE_COLLECTIVE.get(job.committed, ()):
        raise OSError(28, "No space left on device")
    if job.committed == DISTRIBUTED:
        (folder / "no folder").touch()
        save_distributed({"model": model.state_dict()}, checkpoint_id=folder / "no folder")
    dist.all_reduce(drawn)
    if job.rank in AFTER_THE_COLLECTIVE.get(job.committed, ()):
        raise OSError(28, "No space left on device")
    model.train()
    return drawn.item()


for number in job.steps(40):
    log(job, "loss", train())
    if number % 4 == 3:
        log(job, "saved", None if job.committed in LEFT_OUT else save())
final(job, model=model, optimizer=optimizer, written=written)
