"""A batch is an object with __slots__ that hides its data in a closure: its digest cannot be computed."""

# group: data
# expect: told US1301

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


class Lazy:
    __slots__ = ("load",)

    def __init__(self, items):
        self.load = lambda: torch.stack(items)


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = list(torch.randn(60, 8))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=Lazy)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs = batch.load()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
