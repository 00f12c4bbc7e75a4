"""A random.Random that only the first set-up makes, to write a file, and that stays as a global: a newcomer has none."""

# group: reported by users
# expect: bitwise

import os
import random
from pathlib import Path

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
order = Path(os.environ.get("TRACE_OUT", "."), f"order-{job.rank}.txt")
if not order.exists():
    shuffler = random.Random(3 + job.rank)
    numbers = list(range(48))
    shuffler.shuffle(numbers)
    order.write_text(" ".join(map(str, numbers)))
numbers = [int(word) for word in order.read_text().split()]
data = torch.randn(48, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(data[numbers[4 * step : 4 * step + 4]])
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
