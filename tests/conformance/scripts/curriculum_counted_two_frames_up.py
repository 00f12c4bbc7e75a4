"""main() keeps the level of a curriculum; a callback raises it from a helper's loop, so its frame is two above the loop's."""

# ranks: 3
# group: unregistered state
# expect: bitwise

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy


def run(job, steps, train_step, trace, on_step_end):
    for step in job.steps(steps):
        loss = train_step(step)
        on_step_end(loss)
        trace.line(f"step {step}", loss=loss)


def main():
    level, good = 1, 0

    def on_step_end(loss):
        nonlocal level, good
        good = good + 1 if loss < 1.5 else 0
        if good == 2:
            level, good = level + 1, 0

    def train():
        job = understudy.join()
        torch.manual_seed(0)
        model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
        job.register(model=model, optimizer=optimizer)
        torch.manual_seed(1 + job.rank)
        trace = Trace(job.rank)

        @job.step
        def train_step(step):
            inputs = torch.randn(4, 8) * (1 + 0.2 * level)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            optimizer.step()
            return mean.item() / job.world_size

        run(job, 12, train_step, trace, on_step_end)
        trace.final(model=model, optimizer=optimizer, level=level, good=good)

    train()


if __name__ == "__main__":
    main()
