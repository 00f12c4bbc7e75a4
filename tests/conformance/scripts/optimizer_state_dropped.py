"""Adam's moments are dropped after step 6, so that it starts over with a lower learning rate (a warm restart)."""

# group: optimizers
# expect: bitwise

from collections import defaultdict

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
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
    if job.committed == 6:
        optimizer.state = defaultdict(dict)
        optimizer.param_groups[0]["lr"] = 1e-3

trace.final(model=model, optimizer=optimizer)
