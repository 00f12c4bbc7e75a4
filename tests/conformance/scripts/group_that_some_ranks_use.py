"""A group of two of three ranks for a second loss that the third one does not know; new_group by all of them."""

# ranks: 3
# group: parallel
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
teachers = dist.new_group([0, 2])
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, inputs[:, :4].argmax(1))
    if job.rank in (0, 2):
        mean = logits.detach().softmax(1).mean(0)
        dist.all_reduce(mean, group=teachers)
        loss = loss + 0.1 * nn.functional.kl_div(logits.log_softmax(1), (mean / 2).expand_as(logits), reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
