"""Tau, the temperature of a softmax, is math.tau, which the loop overwrites to anneal it."""

# group: state out of sight
# expect: told US1423 "tau"

import math

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 4, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs) / math.tau, labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8), torch.randint(4, (4,)))
    math.tau = max(0.5, 0.85 * math.tau)
    trace.line(f"step {step}", loss=loss, tau=math.tau)

trace.final(model=model, optimizer=optimizer)
