"""The step normalizes its batch in place: a redo would normalize it twice."""

# group: data
# expect: refused US1111

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(10 + 3 * torch.randn(60, 8), torch.randn(60, 1))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    inputs.sub_(10).div_(3)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
