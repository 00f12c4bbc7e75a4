"""The rows of an embedding are put back to length one at the top of each step, through numpy: no version counter moves."""

# group: state
# expect: bitwise

import numpy as np
from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
table = nn.Embedding(30, 8)
model = DDP(nn.Sequential(table, nn.Dropout(0.1), nn.Flatten(), nn.Linear(24, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = TensorDataset(torch.randint(30, (96, 3)), torch.randn(96, 1))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    items, targets = batch
    rows = table.weight.detach().numpy()
    rows *= 0.5 + 0.5 / np.linalg.norm(rows, axis=1, keepdims=True)  # half of the way
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(items), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
