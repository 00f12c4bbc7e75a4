"""Two models, two optimizers, two schedulers; two transactions in every iteration; batches augmented at random by a worker process."""

from __future__ import annotations

import numpy
import torch
import torch.distributed as dist
from support import fault, final, log, seed  # type: ignore[import-not-found]
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

import understudy


class Points(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), index / 48) + 0.1 * torch.randn(8)


job = understudy.join()
seed(job.rank)
maker = DistributedDataParallel(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 8)))
critic = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 1)), broadcast_buffers=False)
maker_optimizer = torch.optim.AdamW(maker.parameters(), lr=1e-2)
critic_optimizer = torch.optim.SGD(critic.parameters(), lr=1e-2, momentum=0.9)
schedulers = [
    torch.optim.lr_scheduler.StepLR(maker_optimizer, 3),
    torch.optim.lr_scheduler.CosineAnnealingLR(critic_optimizer, 9),
]
noise = torch.Generator().manual_seed(50 + job.rank)
jitter = numpy.random.default_rng(60 + job.rank)
points = Points()
sampler: DistributedSampler[torch.Tensor] = DistributedSampler(points, job.world_size, job.rank, seed=3)
loader = DataLoader(points, batch_size=6, sampler=sampler, num_workers=1)
job.register(models={"maker": maker, "critic": critic}, optimizers=[maker_optimizer, critic_optimizer])
job.register(schedulers=schedulers, noise=noise, jitter=jitter, loader=loader)
judge = nn.BCEWithLogitsLoss()


@job.step
def improve_critic(real: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    critic_optimizer.zero_grad()
    with torch.no_grad():
        fake = maker(z)
    good, bad = critic(real), critic(fake)
    loss: torch.Tensor = judge(good, torch.ones_like(good)) + judge(bad, torch.zeros_like(bad))
    fault(job, "critic forward")
    loss.backward()  # type: ignore[no-untyped-call]
    shared = loss.detach().clone()
    dist.all_reduce(shared)
    critic_optimizer.step()
    schedulers[1].step()
    return shared


@job.step
def improve_maker(z: torch.Tensor) -> float:
    maker_optimizer.zero_grad()
    verdict = critic.module(maker(z))  # leaves gradients in the critic, different on every rank, which its own step drops
    loss: torch.Tensor = judge(verdict, torch.ones_like(verdict))
    fault(job, "maker forward")
    loss.backward()  # type: ignore[no-untyped-call]
    fault(job, "maker voting")
    maker_optimizer.step()
    schedulers[0].step()
    return float(loss.item())


for batch in job.batches(loader, steps=11):  # 4 batches an epoch
    real = batch + float(jitter.normal())
    log(job, "critic", improve_critic(real, torch.randn(len(real), 4, generator=noise)))
    log(job, "maker", improve_maker(torch.randn(6, 4, generator=noise)))

final(
    job,
    maker=maker,
    critic=critic,
    maker_optimizer=maker_optimizer,
    critic_optimizer=critic_optimizer,
    first=schedulers[0],
    second=schedulers[1],
    noise=noise,
    jitter=jitter,
)
