"""A training script that depends on memory which cannot be tracked: the argument chooses how."""

# ranks: 3
# expect: bitwise

import ctypes
import itertools
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))

from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

how = sys.argv[1]
STEPS, LATE = 16, 13
libc = ctypes.CDLL(None)
libc.calloc.restype = ctypes.c_void_p
address = libc.calloc(1, 8)


def peek():
    return ctypes.c_int64.from_address(address).value


def poke(value):
    ctypes.c_int64.from_address(address).value = value


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1)), bucket_cap_mb=0.0001)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
data = random_dataset(192, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
ticks = itertools.count()
if how == "newcomer":  # what the set-up finds is not what it found when the job began
    mark = Path(os.environ["TRACE_OUT"], f"began-{job.rank}")
    poke(int(mark.exists()))
    mark.touch()
if how in ("last bucket", "first step"):  # in the order of backward: everything else has been given to collectives by then
    model.module[0].weight.register_hook(lambda gradient: gradient * (1 + peek() % 2))


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    if how in ("last bucket", "update") or (how == "first step" and peek() < 2 and job.committed == 0):
        poke(peek() + 1)
    if how == "newcomer":
        loss = loss * (1 + peek())
    if how == "own mean":  # as a baseline that each rank keeps for itself
        poke((peek() + int(1000 * loss.item())) // 2)
        loss = loss * (1 + peek() / 1000)
    if how == "late" and next(ticks) >= LATE:
        loss = loss * 2
    if how == "noise":
        loss = loss * (1 + 1e-3 * os.urandom(1)[0])
    dist.all_reduce(loss.detach().clone())  # after this every other rank has begun the step, whichever is lost
    loss.backward()
    if how == "update":
        optimizer.param_groups[0]["lr"] = 1e-2 * (1 + peek() % 2)
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    total = model.module(data.tensors[0][job.rank :: job.world_size]).sum().detach()
    if how == "section":
        poke(peek() + 1)
        total = total * (1 + peek())
    dist.all_reduce(total)
    return total.item()


for batch in job.batches(loader, steps=STEPS):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 5 == 0:
        trace.line(f"evaluation {job.committed}", total=evaluate())

trace.final(model=model, optimizer=optimizer)
