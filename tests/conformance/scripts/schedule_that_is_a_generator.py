"""The learning rate comes from a generator, which the loop advances before each step."""

# group: unregistered state
# expect: told US1403 "rates"

import math

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def warm_up_then_cosine(highest, warm_up, steps):
    for step in range(warm_up):
        yield highest * (step + 1) / warm_up
    for step in range(steps - warm_up):
        yield 0.5 * highest * (1 + math.cos(math.pi * step / (steps - warm_up)))


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
rates = warm_up_then_cosine(3e-2, 4, 12)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    for group in optimizer.param_groups:
        group["lr"] = next(rates)
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer)
