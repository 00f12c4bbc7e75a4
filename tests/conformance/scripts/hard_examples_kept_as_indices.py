"""Each rank remembers the indices of its hardest samples in a sorted list, and trains on some of them again."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
items = torch.randn(72, 8)
targets = torch.randn(72, 1)
loader = DataLoader(range(72), batch_size=4, sampler=DistributedSampler(range(72)))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
hardest = []


@job.step
def train_step(indices):
    again = torch.tensor([index for _, index in hardest[:2]], dtype=torch.long)
    indices = torch.cat([indices, again])
    optimizer.zero_grad()
    losses = nn.functional.mse_loss(model(items[indices]), targets[indices], reduction="none")[:, 0]
    loss = losses.mean()
    loss.backward()
    found = {index: value for value, index in hardest} | dict(zip(indices.tolist(), losses.tolist(), strict=True))
    hardest[:] = sorted(((value, index) for index, value in found.items()), reverse=True)[:6]
    optimizer.step()
    return loss.item()


for indices in job.batches(loader, steps=12):
    loss = train_step(indices)
    trace.line(f"step {job.committed}", loss=loss, hardest=[index for _, index in hardest])

trace.final(model=model, optimizer=optimizer, hardest=hardest)
