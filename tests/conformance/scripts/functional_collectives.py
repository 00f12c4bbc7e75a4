"""Gradients averaged by functional collectives (all_reduce, all_gather_tensor, reduce_scatter_tensor) that return new tensors."""

# group: parallel
# expect: bitwise

import torch.distributed._functional_collectives as functional
from _common import dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = mlp(8, 30, 3, nn.GELU)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    seen = functional.all_gather_tensor(inputs.mean(0, keepdim=True), 0, dist.group.WORLD)
    loss = nn.functional.cross_entropy(model(inputs - seen.mean(0)), inputs[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    for number, parameter in enumerate(model.parameters()):
        if number % 2 or parameter.shape[0] % job.world_size:
            parameter.grad = functional.all_reduce(parameter.grad, "sum", dist.group.WORLD) / job.world_size
        else:
            part = functional.reduce_scatter_tensor(parameter.grad, "sum", 0, dist.group.WORLD) / job.world_size
            parameter.grad = functional.all_gather_tensor(part, 0, dist.group.WORLD).clone()
    mean = functional.all_reduce(loss.detach(), "sum", dist.group.WORLD)
    optimizer.step()
    return mean.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
