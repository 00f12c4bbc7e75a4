"""The learning rate is a tensor that the script keeps, changes in place each step, and reads."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)))
lr = torch.tensor(1e-2)
optimizer = torch.optim.AdamW(model.parameters(), lr=lr, foreach=False)
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
    lr.mul_(0.9)  # the optimizer reads the same tensor
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, lr=lr, used=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer, lr=lr)
