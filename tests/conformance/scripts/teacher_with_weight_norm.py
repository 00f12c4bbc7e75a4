"""A momentum teacher, never trained by gradients, whose head has the older weight norm: its weight is computed anew in each forward
pass and kept as a plain attribute, which has no graph there.
"""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

WIDTH = 8


def main():
    job = understudy.join()
    torch.manual_seed(0)

    def net():
        return nn.Sequential(nn.Linear(8, WIDTH), nn.GELU(), nn.utils.weight_norm(nn.Linear(WIDTH, 64, bias=False)))

    student, teacher = net(), net()
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    model = DistributedDataParallel(student)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, teacher=teacher, optimizer=optimizer)
    torch.manual_seed(1 + job.rank)
    trace = Trace(job.rank)

    @job.step
    def train_step(step):
        inputs = torch.randn(4, 8)
        optimizer.zero_grad()
        wanted = teacher(inputs + 0.1 * torch.randn(4, 8)).softmax(1)
        loss = -(wanted * model(inputs).log_softmax(1)).sum(1).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for mine, its in zip(teacher.parameters(), student.parameters(), strict=True):
                mine.mul_(0.9).add_(its, alpha=0.1)
        return loss.item()

    for step in job.steps(40):
        trace.line(f"step {step}", loss=train_step(step))
    trace.final(model=model, teacher=teacher, optimizer=optimizer)


main()
