"""functools.cache keeps, for each level of difficulty, the loss that the model had when that level was first met."""

# group: state out of sight
# expect: told US1423 "baseline"

import functools

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
net = mlp(8, 24, 1, nn.ReLU)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
probe = torch.randn(16, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@functools.cache
def baseline(level):
    """The loss at the start of a level; measured once."""
    with torch.no_grad():
        hidden = net[1](net[0](level * probe))
        return nn.functional.mse_loss(net[3](hidden), level * probe.sum(1, keepdim=True)).item()


@job.step
def train_step(inputs, level):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(level * inputs), level * inputs.sum(1, keepdim=True))
    (loss / baseline(level)).backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8), 1 + step % 3)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
