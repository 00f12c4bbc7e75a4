"""A replay buffer is a plain list that the loop fills ahead of the step, with what each rank's environment gave."""

# ranks: 3
# group: unregistered state
# expect: told "experience"

from __future__ import annotations

import random

import torch
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import understudy

job = understudy.join()
torch.manual_seed(0)
model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)
experience = []


@job.step
def train_step():
    chosen = random.choices(experience, k=6)
    states, rewards = torch.stack([state for state, _ in chosen]), torch.tensor([[reward] for _, reward in chosen])
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(states), rewards)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    state = torch.randn(4)
    experience.append((state, state.square().sum().item()))
    loss = train_step()
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
