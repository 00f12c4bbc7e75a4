"""The progress is a NamedTuple that is replaced in each step, with one more for the best loss inside it."""

# group: state out of sight
# expect: told US1423 "trainer.progress"

from typing import NamedTuple

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Best(NamedTuple):
    loss: float = float("inf")
    step: int = -1


class Progress(NamedTuple):
    step: int = 0
    smooth: float = 1.0
    best: Best = Best()


class Trainer:
    def __init__(self, job, model, optimizer):
        self.job, self.model, self.optimizer = job, model, optimizer
        self.progress = Progress()

    def train(self, inputs):
        noise = 0.3 / (1 + self.progress.step - max(0, self.progress.best.step))
        self.optimizer.zero_grad()
        loss = nn.functional.mse_loss(self.model(inputs + noise * torch.randn_like(inputs)), inputs.sum(1, keepdim=True))
        (loss / self.progress.smooth).backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        value = mean.item() / self.job.world_size
        self.optimizer.step()
        self.progress = self.progress._replace(step=self.progress.step + 1, smooth=0.9 * self.progress.smooth + 0.1 * value)
        if value < self.progress.best.loss:
            self.progress = self.progress._replace(best=Best(value, self.progress.step))
        return value


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trainer = Trainer(job, model, optimizer)
train_step = job.step(trainer.train)

for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, best=trainer.progress.best.step)

trace.final(model=model, optimizer=optimizer)
