"""A helper keeps the smoothed loss in its mutable default argument, as a cheap static variable."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def smoothed(value, memory={}, decay=0.8):  # noqa: B006
    memory["mean"] = value if "mean" not in memory else decay * memory["mean"] + (1 - decay) * value
    return memory["mean"]


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    usual = smoothed(mean.item() / job.world_size)
    (loss / usual).backward()
    optimizer.step()
    return loss.item(), usual


for step in job.steps(12):
    loss, usual = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, usual=usual)

trace.final(model=model, optimizer=optimizer)
