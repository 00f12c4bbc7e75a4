"""DDP with init_sync=False (all ranks have the same seed), and outputs in a dict, of which one part is only logged."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(0.1))
        self.value = nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.body(x)
        return {"value": self.value(hidden), "active": (hidden.detach() > 0).float().mean()}


job = join_seeded()
model = DDP(Heads(), init_sync=False, bucket_cap_mb=0.0005)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = random_dataset(96, 20, 5)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    outputs = model(inputs)
    loss = nn.functional.mse_loss(outputs["value"], targets)
    loss.backward()
    optimizer.step()
    return loss.item(), outputs["active"]


for batch in job.batches(loader, steps=12):
    loss, active = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, active=active)

trace.final(model=model, optimizer=optimizer)
