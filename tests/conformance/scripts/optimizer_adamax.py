"""Adamax, with two learning rates by parameter group."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
trunk = nn.Sequential(nn.Linear(9, 30), nn.ELU(), nn.Dropout(0.1))
head = nn.Linear(30, 2)
model = DDP(nn.Sequential(trunk, head))
optimizer = torch.optim.Adamax([{"params": trunk.parameters(), "lr": 1e-3}, {"params": head.parameters()}], lr=1e-2)
data = TensorDataset(torch.rand(96, 9), torch.rand(96, 2))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.l1_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
