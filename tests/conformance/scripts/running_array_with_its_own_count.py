"""A subclass of numpy's array holds the mean of the inputs and counts, as an attribute, how many it has seen."""

# group: state out of sight
# expect: told US1423 "mean"

import numpy
from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class RunningMean(numpy.ndarray):
    seen = 0

    def __array_finalize__(self, other):
        self.seen = getattr(other, "seen", 0)

    def update(self, values):
        for value in values:
            self.seen += 1
            self += (value - self) / self.seen


def running_mean(size):
    return numpy.zeros(size, dtype=numpy.float32).view(RunningMean)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
mean = running_mean(8)


@job.step
def train_step(raw):
    mean.update(raw.numpy())
    inputs = raw - torch.from_numpy(numpy.array(mean))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), raw.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item(), mean.seen


for step in job.steps(14):
    loss, seen = train_step(2 + torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, seen=seen)

trace.final(model=model, optimizer=optimizer)
