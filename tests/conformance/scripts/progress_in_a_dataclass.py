"""A dataclass keeps the best loss, the steps without progress and the weight of the penalty that follows from them."""

# group: unregistered state
# expect: bitwise

from __future__ import annotations

from dataclasses import dataclass

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


@dataclass
class Progress:
    best: float = float("inf")
    stale: int = 0
    penalty: float = 1e-1

    def update(self, loss):
        if loss < 0.95 * self.best:
            self.best, self.stale = loss, 0
        else:
            self.stale += 1
        if self.stale == 2:
            self.penalty, self.stale = self.penalty * 0.5, 0


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
progress = Progress()


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    size = sum(p.square().sum() for p in model.parameters())
    (loss + progress.penalty * size).backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    progress.update(loss)
    trace.line(f"step {step}", loss=loss, best=progress.best, stale=progress.stale, penalty=progress.penalty)

trace.final(model=model, optimizer=optimizer, penalty=progress.penalty)
