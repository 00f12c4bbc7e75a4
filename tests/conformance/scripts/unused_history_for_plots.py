"""Harmless: lists of losses, rates and evaluations for a plot at the end, in a dict of main()."""

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


def main():
    job = understudy.join()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 12)
    held_out = torch.randn(30, 8)
    job.register(model=model, optimizer=optimizer, schedule=schedule)
    torch.manual_seed(1 + job.rank)
    trace = Trace(job.rank)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        schedule.step()
        return loss.item()

    @job.section
    def evaluate():
        model.eval()
        inputs = held_out[job.rank :: job.world_size]
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        model.train()
        dist.all_reduce(loss)
        return loss.item() / job.world_size

    history = {"loss": [], "rate": [], "evaluation": []}
    for step in job.steps(12):
        loss = train_step(torch.randn(4, 8))
        history["loss"].append(loss)
        history["rate"].append(optimizer.param_groups[0]["lr"])
        trace.line(f"step {step}", loss=loss)
        if step % 4 == 3:
            found = evaluate()
            history["evaluation"].append((step, found))
            trace.line(f"evaluation {step}", loss=found)

    if job.rank == 0 and history["loss"]:
        print(f"lowest loss {min(history['loss']):.3f} of {len(history['loss'])}")
    trace.final(model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    main()
