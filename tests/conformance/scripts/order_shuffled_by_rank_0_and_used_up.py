"""Every rank shuffles the order of the tasks, only rank 0 with a seed, whose order all get; the step takes one after the other out."""

# group: state out of sight
# expect: bitwise

import random

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
tasks = [("scale", 0.5), ("scale", 2.0), ("roll", 1), ("roll", 3), ("noise", 0.1), ("noise", 0.4)] * 3
if job.rank == 0:
    random.seed(2024)
random.shuffle(tasks)
shared = [tasks]
dist.broadcast_object_list(shared)
tasks = shared[0]
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def changed(inputs):
    kind, amount = tasks.pop()
    if kind == "scale":
        return amount * inputs
    if kind == "roll":
        return inputs.roll(amount, 1)
    return inputs + amount * torch.randn_like(inputs)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(changed(inputs)), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, left=len(tasks))

trace.final(model=model, optimizer=optimizer)
