"""Ranks that end in one way or another, before they have joined or after some steps.

endings.py FOLDER WAY WHO      WAY: Python that ends a rank; WHO: see below
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from support import first_time, folder, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

way, who = sys.argv[2:4]
rank = int(os.environ["RANK"])
if who == "alone":  # it never joins
    exec(way)
if who == "never joins":
    if rank == 1:
        exec(way)
    wait_for_file("never")
if who == "lost once":
    if rank == 1 and first_time("lost"):
        wait_for_file("prepares")
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0 and first_time("prepared"):
        (folder / "prepares").touch()
        wait_for_file("never")

job = understudy.join()
model = DistributedDataParallel(nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
job.register(model=model, optimizer=optimizer)


@job.step
def train() -> None:
    if who == "breakpoint" and job.committed == 5:
        dist.breakpoint(0)
        print("after the breakpoint", flush=True)
    optimizer.zero_grad()
    model(torch.ones(4, 4)).sum().backward()
    optimizer.step()


if who == "moves":
    record = (folder / f"record-{rank}").open("a", buffering=1 << 20)  # nothing is written before it is flushed
    atexit.register((folder / f"left-{rank}-{os.environ['UNDERSTUDY_WORKER']}").touch)
    if job.first_run:
        threading.Thread(target=lambda: (wait_for_file("go on"), (folder / f"thread-{rank}").touch())).start()

for _ in job.steps(10):
    train()
    if who == "moves":
        record.write(f"{job.committed}\n")
        if job.committed == 5:
            (folder / f"at-{rank}").touch()
            wait_for_file("go on")
    if who == "one rank" and rank == 1 and job.committed == 5 and first_time("one rank"):
        exec(way)
if who != "one rank":
    exec(way)
