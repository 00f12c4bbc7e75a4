"""Imports modules called like some of Python's library, and writes which came from its own folder: namesakes.py FOLDER NAME...

Each rank adds a line to FOLDER/own-RANK.txt, and trains. With "alone" in place of FOLDER it prints the line and ends, without torch.
"""

from __future__ import annotations

import importlib
import sys

own = " ".join(name for name in sys.argv[2:] if hasattr(importlib.import_module(name), "OWN"))
if sys.argv[1] == "alone":
    print(own)
    sys.exit()

import os  # noqa: E402
from pathlib import Path  # noqa: E402

import torch  # noqa: E402

import understudy  # noqa: E402

folder, SIGKILL = Path(sys.argv[1]), 9  # `signal` may be another module

job = understudy.join()
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, optimizer=optimizer)
with (folder / f"own-{job.rank}.txt").open("a") as file:
    file.write(f"{own}\n")


@job.step
def train() -> None:
    optimizer.zero_grad()
    model(torch.randn(2, 4)).sum().backward()
    if job.rank == 1 and job.committed == 2 and not (folder / "killed").exists():
        (folder / "killed").touch()
        os.kill(os.getpid(), SIGKILL)
    for parameter in model.parameters():
        torch.distributed.all_reduce(parameter.grad)
    optimizer.step()


for _ in job.steps(4):
    train()
