"""Counters as buffers: how often the model ran and how many samples it saw, which set the strength of its noise."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Annealed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("positive", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        if self.training:
            self.calls += 1
            self.positive += (x[:, 0] > 0).sum()
            strength = 1 / (1 + self.calls.float()) + 0.01 * self.positive
            x = x + strength * torch.randn_like(x)
        return self.net(x)


job = join_seeded()
model = DDP(Annealed(), broadcast_buffers=False)
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
    trace.line(f"step {job.committed}", loss=loss, calls=model.module.calls, positive=model.module.positive)

trace.final(model=model, optimizer=optimizer)
