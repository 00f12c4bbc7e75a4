"""Gradients are clipped at the median of the last norms, kept in a deque of limited length."""

# group: unregistered state
# expect: bitwise

import statistics
from collections import deque

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
norms = deque(maxlen=5)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    limit = statistics.median(norms) if norms else 1.0
    norm = nn.utils.clip_grad_norm_(model.parameters(), limit)
    norms.append(norm.item())
    optimizer.step()
    return loss.item(), limit


for batch in job.batches(loader, steps=12):
    loss, limit = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, limit=limit)

trace.final(model=model, optimizer=optimizer, norms=list(norms))
