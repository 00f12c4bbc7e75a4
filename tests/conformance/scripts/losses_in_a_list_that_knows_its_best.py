"""A subclass of list remembers the lowest loss that was appended to it, and since when; the learning rate depends on it."""

# group: state out of sight
# expect: told US1423 "losses"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Losses(list):
    best = float("inf")
    stale = 0

    def append(self, value):
        super().append(value)
        if value < self.best:
            self.best, self.stale = value, 0
        else:
            self.stale += 1


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
losses = Losses()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item() / job.world_size)
    loss.backward()
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + losses.stale) / max(losses.best, 0.5)
    optimizer.step()
    return loss.item(), losses.stale


for step in job.steps(14):
    loss, stale = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, stale=stale)

trace.final(model=model, optimizer=optimizer)
