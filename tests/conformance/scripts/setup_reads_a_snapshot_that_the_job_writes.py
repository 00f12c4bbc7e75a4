"""Training resumes from a snapshot if there is one, and each epoch overwrites it: a newcomer finds the one of its own job."""

# group: setup
# expect: told US1621

import os
from pathlib import Path

from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
net = mlp(8, 16, 1, nn.GELU)
data = random_dataset(36, 8, 1)
path = Path(os.environ.get("TRACE_OUT", "."), "snapshot.pt")
first = 0
if path.exists():
    snapshot = torch.load(path, weights_only=True)
    net.load_state_dict(snapshot["model"])
    first = snapshot["epoch"] + 1
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
if path.exists():
    optimizer.load_state_dict(snapshot["optimizer"])
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def save(epoch):
    if job.rank == 0:
        partial = path.with_suffix(".partial")
        torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, partial)
        partial.rename(path)


for epoch in range(first, 4):
    sampler.set_epoch(epoch)
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)
    save(epoch)

trace.final(model=model, optimizer=optimizer)
