"""As in the DCGAN tutorial: two networks, two optimizers, two steps in one iteration, samples from fixed noise."""

# ranks: 3
# group: loops
# expect: bitwise

from __future__ import annotations

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
generator = DistributedDataParallel(nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh()))
critic = DistributedDataParallel(nn.Sequential(nn.Linear(8, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(16, 1)))
first = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.999))
second = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
fixed = torch.randn(5, 4)
job.register(generator=generator, critic=critic, first=first, second=second)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
judge = nn.functional.binary_cross_entropy_with_logits


@job.step
def train_critic(real):
    first.zero_grad()
    with torch.no_grad():
        fake = generator.module(torch.randn(6, 4))
    verdicts = critic(torch.cat([real, fake]))
    loss = judge(verdicts, torch.cat([torch.ones(6, 1), torch.zeros(6, 1)]))
    loss.backward()
    first.step()
    return loss.item()


@job.step
def train_generator():
    second.zero_grad()
    critic.requires_grad_(False)
    loss = judge(critic.module(generator(torch.randn(6, 4))), torch.ones(6, 1))
    loss.backward()
    critic.requires_grad_(True)
    second.step()
    return loss.item()


@job.section
def sample():
    generator.eval()
    with torch.no_grad():
        found = generator.module(fixed)
    generator.train()
    return found


for step in job.steps(8):
    real = torch.tanh(torch.randn(6, 8) + 1)
    trace.line(f"step {step}", critic=train_critic(real), generator=train_generator())
    if step % 3 == 2:
        trace.line(f"evaluation {step}", samples=sample())

trace.final(generator=generator, critic=critic, first=first, second=second)
