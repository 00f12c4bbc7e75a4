"""SparseAdam for an embedding with sparse gradients, Adam for the rest; DDP reduces the sparse gradients as such."""

# group: optimizers
# expect: refused US1224

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
table = nn.Embedding(200, 8, sparse=True)
rest = nn.Sequential(nn.Flatten(), nn.Dropout(0.1), nn.Linear(24, 1))
model = DDP(nn.Sequential(table, rest))
sparse = torch.optim.SparseAdam(table.parameters(), lr=1e-2)
dense = torch.optim.Adam(rest.parameters(), lr=1e-2)
data = TensorDataset(torch.randint(200, (96, 3)), torch.randn(96, 1))
loader = sharded_loader(data, 4)
job.register(model=model, sparse=sparse, dense=dense)
trace = start_trace(job)


@job.step
def train_step(batch):
    items, targets = batch
    sparse.zero_grad()
    dense.zero_grad()
    loss = nn.functional.mse_loss(model(items), targets)
    loss.backward()
    sparse.step()
    dense.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, sparse=sparse, dense=dense)
