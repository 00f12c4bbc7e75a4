"""DDP ignores an adapter that each rank trains on its own: no other rank has a replica of it."""

# group: ddp
# expect: told US4711

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.shared = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1))
        self.adapter = nn.Linear(24, 24)
        self.out = nn.Linear(24, 1)

    def forward(self, x):
        hidden = self.shared(x)
        return self.out(hidden + self.adapter(hidden))


job = join_seeded()
net = Adapted()
DDP._set_params_and_buffers_to_ignore_for_model(net, ["adapter.weight", "adapter.bias"])
model = DDP(net)
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

trace.final(model=model, optimizer=optimizer)
