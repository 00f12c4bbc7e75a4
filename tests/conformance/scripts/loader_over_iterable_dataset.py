"""An IterableDataset is sharded by rank; its buffer is shuffled with the global stream."""

# group: data
# expect: told US1331

from _common import DDP, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, IterableDataset


class Stream(IterableDataset):
    def __init__(self, items, rank, ranks, buffer=8):
        self.items, self.rank, self.ranks, self.buffer = items, rank, ranks, buffer

    def __iter__(self):
        waiting = []
        for item in self.items[self.rank :: self.ranks]:
            waiting.append(item)
            if len(waiting) >= self.buffer:
                yield waiting.pop(int(torch.randint(len(waiting), ())))
        yield from waiting


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = DataLoader(Stream(torch.randn(60, 8), job.rank, job.world_size), batch_size=4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
