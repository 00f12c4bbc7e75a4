"""Samples that a rank meets again weigh less: the step keeps the indices that it has seen in a set."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
items, targets = torch.randn(45, 8), torch.randn(45, 1)
loader = DataLoader(range(45), batch_size=5, sampler=DistributedSampler(range(45)))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
seen = set()


@job.step
def train_step(indices):
    weights = torch.tensor([0.4 if index in seen else 1.0 for index in indices.tolist()])
    seen.update(indices.tolist())
    optimizer.zero_grad()
    losses = nn.functional.mse_loss(model(items[indices]), targets[indices], reduction="none")[:, 0]
    loss = (weights * losses).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for indices in job.batches(loader, steps=12):
    loss = train_step(indices)
    trace.line(f"step {job.committed}", loss=loss, seen=len(seen))

trace.final(model=model, optimizer=optimizer, seen=seen)
