"""One way to use the training API wrongly, or to fail, named by the second argument."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from support import Counter, fault, first_time, seed  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel

import understudy

case = sys.argv[2]
if case == "unknown backend":
    import torch.testing._internal.distributed.fake_pg  # registers the backend "fake"

job = understudy.join()
seed(1)
net = nn.Linear(8, 8)
model = net if case == "unregistered plain model" else DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters())
counter = Counter()
if case != "unregistered schedule":  # an object of one's own may be what holds the schedule
    job.register(counter=counter)
if case not in ("unregistered model", "unregistered plain model"):
    job.register(model=model)
if case != "unregistered optimizer":
    job.register(optimizer=optimizer)
if case == "unmovable":
    job.register(file=sys.stdout)
if case == "registered twice":
    job.register(counter=Counter())
if case == "unregistered schedule":
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
if case == "FSDP1":
    whole = FullyShardedDataParallel(nn.Linear(8, 8), device_id=torch.device("cpu"))
    job.register(whole=whole)
if case == "unknown backend":
    dist.new_group(backend="fake")
if case == "too large":
    job.register(cache=torch.full((1 << 20,), float(job.rank)))
if case == "much heard":
    heard = torch.zeros(3 << 18)
    dist.broadcast(heard, src=0)


@job.section
def evaluate() -> float:
    if case == "optimizer in a section":
        optimizer.step()
    return 1.0


@job.step
def train(batch: torch.Tensor) -> torch.Tensor:
    if case != "adds to gradients" or job.committed != 5:
        optimizer.zero_grad()
    if case == "batch changed in place":
        batch.mul_(2.0)
    if case == "nested":
        evaluate()
    loss: torch.Tensor = model(batch).square().mean()
    fault(job, "before backward")
    if case == "adds to gradients":
        dist.all_reduce(loss.detach().clone())  # nobody computes gradients before all are here
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "after backward")
    if case == "exception" and job.rank == 1 and job.committed == 3:
        raise ValueError("wrong on purpose")
    if case == "exit" and job.committed == 3:
        sys.exit(3)
    optimizer.step()
    if case == "collective after the vote":
        dist.all_reduce(loss.detach())
    if case != "one goes on":  # it hands nothing over either, so that its next message to others is in a collective
        counter.count += job.rank + 1
    return loss.detach()


if case == "one trains" and job.rank == 1:
    sys.exit()
elsewhere = case == "newcomer goes elsewhere" and job.rank == 1 and not first_time("rank 1")
for number in job.steps(0 if elsewhere else 8):
    train(torch.full((4, 8), float(number)))
    if case == "leaves early" and job.rank == 1 and job.committed == 5:
        break
    if case == "one goes on" and job.rank != 2 and job.committed == 5:
        break
    if case == "registered late":
        job.register(late=Counter())
    if case == "nested loops":
        next(iter(job.steps(3)))
    if case == "optimizer in a section":
        evaluate()
    if case == "optimizer outside":
        optimizer.step()
    if case == "collective outside":
        fault(job, "outside")
        dist.all_reduce(torch.ones(3))
