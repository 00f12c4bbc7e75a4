"""Batches from a stream of Python's that nothing else draws from, through a buffer that shuffles."""

# group: reported by users
# expect: bitwise

import random

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Noise:
    def __iter__(self):
        buffer = [torch.full((4, 8), float(number)) for number in range(5)]
        for number in range(5, 100):
            place = random.randrange(len(buffer))
            yield 0.1 * buffer[place]
            buffer[place] = torch.full((4, 8), float(number))


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(Noise(), steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
