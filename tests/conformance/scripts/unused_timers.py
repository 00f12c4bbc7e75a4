"""Harmless: timers of the forward, the backward and the whole step, and tokens for each second, in a dict of lists."""

# group: unregistered state
# expect: bitwise

import time
from collections import defaultdict
from contextlib import contextmanager

from _common import DDP, join_seeded, nn, start_trace, torch


class Timers:
    def __init__(self):
        self.seconds = defaultdict(list)

    @contextmanager
    def of(self, name):
        begun = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - begun)

    def report(self):
        return ", ".join(f"{name} {1000 * sum(values) / len(values):.1f} ms" for name, values in self.seconds.items())


job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
timers, tokens_done = Timers(), 0


@job.step
def train_step(tokens):
    global tokens_done
    optimizer.zero_grad()
    with timers.of("forward"):
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    with timers.of("backward"):
        loss.backward()
    tokens_done += tokens.numel()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    begun = time.perf_counter()
    loss = train_step(torch.randint(20, (4, 7)))
    timers.seconds["step"].append(time.perf_counter() - begun)
    if step % 4 == 3:
        print(f"step {step}: {timers.report()}, {tokens_done / sum(timers.seconds['step']):.0f} tokens/s")
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
