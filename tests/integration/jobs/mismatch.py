"""Does not set up the same way twice: who comes second broadcasts where the first one reduced."""

from __future__ import annotations

import torch
import torch.distributed as dist
from support import fault, first_time  # type: ignore[import-not-found]

import understudy

job = understudy.join()
value = torch.ones(5)
dist.all_reduce(value)
if first_time(f"set-up of {job.rank}"):
    dist.all_reduce(value)
else:
    dist.broadcast(value, src=0)
job.register(value=value)


@job.section
def talk() -> None:
    dist.all_reduce(torch.ones(1))
    fault(job, "talking")


for _ in job.steps(4):
    talk()
