"""Batches are numpy arrays that the step scales in place: no version counter shows the change."""

# group: data
# expect: refused US1111

import numpy
from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = list(numpy.random.default_rng(0).integers(0, 256, (60, 8)).astype(numpy.float32))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=numpy.stack)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    batch /= 255
    inputs = torch.from_numpy(batch)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
