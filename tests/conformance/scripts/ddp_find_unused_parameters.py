"""Each rank takes one of two random branches; with find_unused_parameters, DDP finds which gradients are missing."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 16)
        self.left = nn.Linear(16, 16)
        self.right = nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.2))
        self.out = nn.Linear(16, 1)

    def forward(self, x):
        hidden = torch.relu(self.stem(x))
        branch = self.left if torch.rand(()) < 0.5 else self.right
        return self.out(torch.relu(branch(hidden)))


job = join_seeded()
model = DDP(Branches(), find_unused_parameters=True)
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
