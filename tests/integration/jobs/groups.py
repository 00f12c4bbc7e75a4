"""Sub-groups made by new_group and by a DeviceMesh, functional collectives, DTensors; a set-up that talks; evaluation in sections."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
settings: list[Any] = [{"seed": 77, "rate": 0.05} if job.rank == 0 else None]
dist.broadcast_object_list(settings, src=0)
seed(settings[0]["seed"])
sizes: list[Any] = [None] * job.world_size
dist.all_gather_object(sizes, 3 + job.rank)
offset = torch.randint(1000, (1,)) if job.rank == 3 else torch.zeros(1, dtype=torch.int64)
dist.broadcast(offset, src=3)
assert dist.group.WORLD is not None
everyone_group = dist.group.WORLD
pairs: list[Any] = [dist.new_group([0, 1]), dist.new_group([2, 3])]
pair = pairs[job.rank // 2]
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
across = mesh["replicate"]

model = DistributedDataParallel(nn.Linear(sum(sizes), 16), process_group=mesh["shard"].get_group())
optimizer = torch.optim.Adam(model.parameters(), lr=settings[0]["rate"])
table = distribute_tensor(torch.randn(8, 16), across, [Shard(0)])  # same on ranks (0, 1), and on (2, 3)
mean = torch.zeros(16)
job.register(model=model, optimizer=optimizer, table=table, mean=mean)
source = torch.Generator().manual_seed(int(offset) + job.rank)
job.register(source=source)


@job.step
def train(number: int) -> torch.Tensor:
    optimizer.zero_grad()
    output = model(torch.randn(5, sum(sizes), generator=source))
    centre = output.detach().mean(0)
    dist.all_reduce(centre, group=pair)
    fault(job, "between groups")
    gathered = functional.all_gather_single(centre, gather_dim=0, group=across)
    mean.mul_(0.9).add_(functional.all_reduce(centre, "sum", group=everyone_group))
    whole = table.redistribute(across, [Replicate()])
    assert isinstance(whole, DTensor)
    loss = (output @ whole.to_local().t()).square().mean() + gathered.mean()
    loss.backward()
    shared = functional.all_reduce(loss.detach(), "sum", group=everyone_group)
    for parameter in model.parameters():  # across the other dimension of the mesh, by hand
        assert parameter.grad is not None
        dist.all_reduce(parameter.grad, group=across.get_group())
    fault(job, "before the vote")
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert isinstance(shared, torch.Tensor)
    return shared + 0.0


@job.section
def evaluate(name: str) -> dict[str, Any]:
    model.eval()
    with torch.no_grad():
        score = model(torch.ones(2, sum(sizes))).sum() + mean.sum()
    dist.all_reduce(score, op=dist.ReduceOp.MAX)
    fault(job, name)
    everyone: list[Any] = [None] * job.world_size
    dist.all_gather_object(everyone, (job.rank, score.item()))
    model.train()  # type: ignore[no-untyped-call]
    return {"score": score, "everyone": everyone}


first = evaluate("first evaluation")
log(job, "first evaluation", first["everyone"])
scale = 1.0 + abs(float(first["score"])) % 1.0
for number in job.steps(12):
    log(job, "loss", train(number) * scale)
    if number % 4 == 3:
        found = evaluate("evaluation")
        log(job, "evaluation", found["everyone"])
        if found["score"] > 0:
            optimizer.param_groups[0]["lr"] *= 0.9
last = evaluate("last evaluation")
log(job, "last evaluation", last["everyone"])
final(job, model=model, optimizer=optimizer, mean=mean, table=table, source=source)
