"""The loss is a functools.partial; after each step one with other keywords replaces it, by the mean loss of all ranks."""

# group: state out of sight
# expect: told US1423 "objective.keywords['margin']"

from functools import partial

from _common import DDP, dist, join_seeded, nn, start_trace, torch


def hinge(scores, labels, margin, smooth=0.0):
    signs = 2 * labels - 1
    return (margin - signs * scores).relu().mean() + smooth * scores.square().mean()


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1), nn.Flatten(0)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
objective = partial(hinge, margin=1.0)


@job.step
def train_step(inputs):
    global objective
    optimizer.zero_grad()
    loss = objective(model(inputs), (inputs.sum(1) > 0).float())
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    margin = objective.keywords["margin"]
    objective = partial(hinge, margin=0.8 * margin + 0.2 * mean.item() / job.world_size, smooth=0.01)
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8))
    trace.line(f"step {step}", loss=loss, margin=objective.keywords["margin"])

trace.final(model=model, optimizer=optimizer, margin=objective.keywords["margin"])
