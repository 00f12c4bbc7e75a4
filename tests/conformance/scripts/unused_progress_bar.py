"""Harmless: a custom progress bar counts steps, shows the smoothed loss and estimates the remaining time."""

# group: unregistered state
# expect: bitwise

import sys
import time

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Bar:
    def __init__(self, total, shown):
        self.total, self.shown = total, shown
        self.done, self.smooth = 0, None
        self.started = time.monotonic()

    def update(self, loss):
        self.done += 1
        self.smooth = loss if self.smooth is None else 0.9 * self.smooth + 0.1 * loss
        if self.shown:
            left = (time.monotonic() - self.started) / self.done * (self.total - self.done)
            filled = "#" * (20 * self.done // self.total)
            print(f"{filled:<20} {self.done}/{self.total} loss {self.smooth:.3f}, {left:.0f} s left", file=sys.stderr)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
bar = Bar(12, shown=job.rank == 0)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    bar.update(loss.item())
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
