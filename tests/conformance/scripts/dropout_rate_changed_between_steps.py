"""Dropout is switched off for good by the loop after step 7, outside of any transaction."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
drop = nn.Dropout(0.4)
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), drop, nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
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
    trace.line(f"step {job.committed}", loss=loss, rate=drop.p)
    if job.committed == 7:
        drop.p = 0.0

trace.final(model=model, optimizer=optimizer)
