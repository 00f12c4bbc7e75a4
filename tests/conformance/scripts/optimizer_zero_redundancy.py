"""ZeroRedundancyOptimizer shards Adam's moments and broadcasts the parameters after each local step."""

# group: optimizers
# expect: refused US1222

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.optim import ZeroRedundancyOptimizer

job = join_seeded()
layers = [nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)]
model = DDP(nn.Sequential(*layers))
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.Adam, lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
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


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer.optim)
