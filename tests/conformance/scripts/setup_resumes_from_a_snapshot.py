"""Training starts from a snapshot in a file: weights, moments and the step from which the data goes on."""

# ranks: 3
# group: set-up
# expect: bitwise

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
folder = tempfile.TemporaryDirectory()  # a snapshot of an earlier run, made here so that the script needs nothing else
path = Path(folder.name, "snapshot.pt")
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
earlier = torch.optim.AdamW(net.parameters(), lr=1e-2)
for _ in range(3):
    net(torch.randn(4, 8)).square().mean().backward()
    earlier.step()
    earlier.zero_grad()
torch.save({"model": net.state_dict(), "optimizer": earlier.state_dict(), "step": 3}, path)
dist.barrier()

snapshot = torch.load(path, weights_only=True)
net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 1))
net.load_state_dict(snapshot["model"])
model = DistributedDataParallel(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.load_state_dict(snapshot["optimizer"])
folder.cleanup()
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
trace.line("set-up", step=snapshot["step"])


@job.step
def train_step(step):
    inputs = torch.randn(4, 8) / (snapshot["step"] + step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
