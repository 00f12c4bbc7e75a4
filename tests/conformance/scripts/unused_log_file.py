"""Harmless: each rank writes its losses to its own file, through a logger object that counts lines."""

# group: unregistered state
# expect: bitwise

import csv
import tempfile
from pathlib import Path

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Log:
    def __init__(self, path):
        self.file = path.open("a", newline="")
        self.writer = csv.writer(self.file)
        self.lines = 0
        self.last = None

    def add(self, step, **values):
        self.writer.writerow([self.lines, step, *values.values()])
        self.file.flush()
        self.lines += 1
        self.last = {"step": step, **values}


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
folder = tempfile.TemporaryDirectory()
log = Log(Path(folder.name, f"losses-{job.rank}.csv"))


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])
    optimizer.step()
    return loss.item(), norm.item()


for step in job.steps(12):
    loss, norm = train_step(torch.randn(4, 8))
    log.add(step, loss=loss, norm=norm)
    trace.line(f"step {step}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)
