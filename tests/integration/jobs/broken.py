"""Two things that are no loss, before a vote, by the name in the arguments.

break: a rank's connections break between its last collective and its vote. The other one is in its vote by then, and needs none of them.
wake: another process ends a rank's wait for a collective, which so seems to have succeeded; its connections are sound.
"""

from __future__ import annotations

import sys
import threading

import torch
import torch.distributed as dist
from support import final, first_time, folder, log, seed, wait_for_file  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy
from understudy.chaos.faults.process import socket_reset
from understudy.worker.transport.backends import gloo_waits

job = understudy.join()
seed(7)
model = DistributedDataParallel(nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)


@job.step
def train(number: int) -> torch.Tensor:
    optimizer.zero_grad()
    loss: torch.Tensor = (model(torch.randn(4, 8)) - number).square().mean()
    if number == 3 and "wake" in sys.argv:
        wakes()
    loss.backward()  # type: ignore[no-untyped-call]
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    if number == 3 and "break" in sys.argv:
        breaks()
    optimizer.step()
    return shared


def breaks() -> None:
    if job.rank:
        (folder / "votes").touch()
        return
    wait_for_file("votes")
    if first_time("broken"):
        socket_reset({})


def wakes() -> None:
    """Rank 1 reaches the collectives of the gradients only when rank 0's wait for it was ended."""
    if job.rank:
        wait_for_file("woken")
    elif first_time("wakes"):
        threading.Thread(target=end_a_wait, daemon=True).start()


def end_a_wait() -> None:
    while not gloo_waits.count():
        pass
    assert job._runtime is not None
    groups = job._runtime.membership.groups
    groups.wake()
    while not groups.woken():
        pass
    (folder / "woken").touch()


for number in job.steps(8):
    log(job, "loss", train(number))
final(job, model=model, optimizer=optimizer)
