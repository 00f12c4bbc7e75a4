"""Programs that are legal although their ranks issue collectives and messages in different orders, or of different sizes."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn

import understudy

what = sys.argv[2]
job = understudy.join()
rank, size = job.rank, job.world_size
seed(5)
groups: list[Any] = [dist.new_group(list(range(size))) for _ in range(2)]
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)


def crossed(value: torch.Tensor) -> torch.Tensor:
    """Asynchronous collectives on two groups, on every second rank in the other order."""
    values = [value.clone(), 2 * value]
    works = [dist.all_reduce(values[which], group=groups[which], async_op=True) for which in ((0, 1) if rank % 2 else (1, 0))]
    for work in works:
        assert work is not None
        work.wait()
    return values[0] - values[1]


def after_a_collective(value: torch.Tensor) -> torch.Tensor:
    """Rank 0 waits for a message that the last rank sends after a collective which rank 0 starts later."""
    got, total = torch.zeros_like(value), value.clone()
    if rank == 0:
        dist.recv(got, src=size - 1)
    work = dist.all_reduce(total, async_op=True)
    if rank == size - 1:
        dist.send(value, dst=0)
    assert work is not None
    work.wait()
    return total + got


def ring(value: torch.Tensor) -> torch.Tensor:
    """Every rank receives first, and sends then."""
    got = torch.zeros_like(value)
    works = [dist.irecv(got, src=(rank - 1) % size), dist.isend(value, dst=(rank + 1) % size)]
    for work in works:
        assert work is not None
        work.wait()
    return got


def batch(value: torch.Tensor) -> torch.Tensor:
    """Both ways at once, and from any rank."""
    got = [torch.zeros_like(value) for _ in range(2)]
    calls = [dist.P2POp(dist.irecv, got[0], (rank - 1) % size, tag=1), dist.P2POp(dist.isend, value, (rank + 1) % size, tag=1)]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    if rank == 0:
        for _ in range(size - 1):
            one = torch.zeros_like(value)
            dist.recv(one, tag=2)
            got[1] += one
    else:
        dist.send(value.new_tensor([float(rank)]).expand_as(value).contiguous(), dst=0, tag=2)
    return got[0] + got[1]


def objects(value: torch.Tensor) -> torch.Tensor:
    """Pickles of different sizes, and parts of them."""
    found: list[Any] = [None] * size
    dist.all_gather_object(found, "x" * 10 ** (rank + job.committed % 2))
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object({"rank": rank, "list": [rank] * rank}, gathered)
    given: list[Any] = [None]
    dist.scatter_object_list(given, [list(range(number)) for number in range(size)] if rank == 0 else None, src=0)
    return value + sum(map(len, found)) + len(given[0])


def uneven(value: torch.Tensor) -> torch.Tensor:
    """Every pair of ranks exchanges another number of rows."""
    rows = [1 + rank + other for other in range(size)]
    given, got = value.repeat(sum(rows), 1), torch.zeros(sum(rows), len(value))
    dist.all_to_all_single(got, given * (rank + 1), rows, rows)
    pieces = [torch.zeros_like(value) for _ in range(size)]
    dist.all_gather(pieces, value * rank)
    piece = torch.zeros_like(value)
    dist.scatter(piece, pieces if rank == 0 else None, src=0)
    dist.gather(piece, pieces if rank == 1 else None, dst=1)
    return got.sum(0) + piece + pieces[-1]


@job.step
def train() -> float:
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    assert model.bias.grad is not None
    fault(job, "in the middle")
    if job.generation > 0:
        fault(job, "again")
    found: torch.Tensor = globals()[what](model.bias.grad.clone())
    dist.all_reduce(found)
    model.bias.grad.add_(0.01 * found)
    fault(job, "before the vote")
    optimizer.step()
    return float(found.sum())


for _ in job.steps(8):
    log(job, "found", train())
final(job, model=model, optimizer=optimizer)
