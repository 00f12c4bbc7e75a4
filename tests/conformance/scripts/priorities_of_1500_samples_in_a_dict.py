"""A dict has the priority of each of 1,500 samples. Only the last quarter is trained on, so the first thousand never change."""

# group: state out of sight
# expect: bitwise

import random

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

COUNT, FIRST = 1500, 1125

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
inputs = torch.randn(COUNT, 8)
targets = inputs.sum(1, keepdim=True)
priorities = dict.fromkeys(range(COUNT), 1.0)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    shard = range(FIRST + job.rank, COUNT, job.world_size)
    chosen = random.choices(shard, weights=[priorities[i] for i in shard], k=6)
    optimizer.zero_grad()
    losses = (model(inputs[chosen]) - targets[chosen]).square().squeeze(1)
    weights = torch.tensor([1 / priorities[i] for i in chosen])
    for i, loss in zip(chosen, losses.tolist(), strict=True):
        priorities[i] = 0.1 + loss
    loss = (weights * losses).mean()
    loss.backward()
    optimizer.step()
    return loss.item(), sum(chosen)


for step in job.steps(14):
    loss, chosen = train_step()
    trace.line(f"step {step}", loss=loss, chosen=chosen)

trace.final(model=model, optimizer=optimizer)
