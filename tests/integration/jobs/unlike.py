"""A newcomer issues something else than the rank did whose place it has taken: its second process of a rank takes another branch."""

from __future__ import annotations

import sys
import threading
from typing import Any

import torch
import torch.distributed as dist
from support import fault, first_time, folder  # type: ignore[import-not-found]
from torch import nn

import understudy
from understudy.worker.verification import deadlocks as held_calls
from understudy.worker.verification.first_transaction import FirstTransaction

what = sys.argv[2]
if "unchecked" in sys.argv:
    FirstTransaction.attempt = lambda self, step: None  # type: ignore[method-assign]
held_calls.PATIENCE = 1.0
job = understudy.join()
torch.manual_seed(3)
other = (folder / "unlike").exists() if what == "reduction" else not first_time(f"process of rank {job.rank}")
pair: Any = dist.new_group([0, job.world_size - 1])
model: nn.Module = nn.Linear(8, 4)
if what == "bucket":
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)


def reduce_gradient(parameter: torch.Tensor) -> None:
    """In the middle of backward, so what it raises comes through C++."""
    assert parameter.grad is not None
    value = parameter.grad if not (other and what == "size" and parameter.dim() == 2) else torch.ones(4, 16)
    dist.all_reduce(value)


for parameter in model.parameters() if what != "bucket" else ():
    parameter.register_post_accumulate_grad_hook(reduce_gradient)  # type: ignore[no-untyped-call]


@job.step
def train() -> None:
    optimizer.zero_grad()
    if what == "bucket" and other:  # the others come from DDP's own C++
        dist.all_reduce(torch.ones(3))
    model(torch.ones(2, 8)).sum().backward()
    fault(job, "before the vote")
    value = torch.ones(16)
    if what == "group" and other:
        dist.all_reduce(value, group=pair)
        dist.all_reduce(value)
    elif what == "group":
        dist.all_reduce(value)
        if job.rank in (0, job.world_size - 1):
            dist.all_reduce(value, group=pair)
    elif what == "operation" and other:
        dist.broadcast(torch.ones(1000), src=0)
    elif what == "reduction" and other:  # which nothing else would notice
        dist.all_reduce(value, op=dist.ReduceOp.MAX)
    elif not (what == "fewer" and other):
        dist.all_reduce(value)
    if what == "message" and job.rank == 0:
        dist.send(torch.ones(4 if not other else 400), dst=1)
    elif what == "message" and job.rank == 1:
        dist.recv(torch.ones(4 if not other else 1), src=0)
    elif what == "never sent" and job.rank == 1 and not other:
        dist.send(torch.ones(4), dst=0)
    elif what == "never sent" and job.rank == 0:
        dist.recv(torch.ones(4), src=1)
    optimizer.step()


@job.section
def evaluate() -> None:
    """The newcomer's is another one, two steps after its first."""
    dist.all_reduce(torch.ones(4, 16 if other and what == "section" else 8))


for _ in job.steps(6 if what != "reduction" else 100_000):
    train()
    if what == "section" and job.committed >= 4:
        evaluate()
    if what == "reduction":
        threading.Event().wait(0.02)
print(f"rank {job.rank} has come to the end")
