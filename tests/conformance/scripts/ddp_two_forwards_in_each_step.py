"""Two forwards and backwards in each step, so that DDP rebuilds its buckets in the middle of the first step."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(24, 1)
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.ReLU())

    def forward(self, x):
        return self.out(self.body(x))


job = join_seeded()
model = DDP(Net(), bucket_cap_mb=0.0005)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    clean = nn.functional.mse_loss(model(inputs), targets)
    clean.backward()
    noisy = nn.functional.mse_loss(model(inputs + 0.1 * torch.randn_like(inputs)), targets)
    noisy.backward()
    optimizer.step()
    return clean.item(), noisy.item()


for batch in job.batches(loader, steps=12):
    clean, noisy = train_step(batch)
    trace.line(f"step {job.committed}", clean=clean, noisy=noisy)

trace.final(model=model, optimizer=optimizer)
