"""The rate of every dropout is lowered inside each step: a plain attribute of a registered module."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, 1))
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p *= 0.9
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, rates=[net[2].p, net[5].p])

trace.final(model=model, optimizer=optimizer)
