"""The level of a curriculum is in an environment variable, as if for the workers of a loader."""

# group: state out of sight
# expect: bitwise

import os

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

os.environ["CURRICULUM_LEVEL"] = "1"


def masked(inputs):
    return inputs * (torch.arange(inputs.shape[1]) < int(os.environ["CURRICULUM_LEVEL"]))


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(masked(inputs)), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    if mean.item() / job.world_size < 12:
        os.environ["CURRICULUM_LEVEL"] = str(min(8, int(os.environ["CURRICULUM_LEVEL"]) + 1))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, level=os.environ["CURRICULUM_LEVEL"])

trace.final(model=model, optimizer=optimizer)
