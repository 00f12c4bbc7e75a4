"""DDP with one bucket per parameter, in a model that uses its parameters in another order than it lists them."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Shuffled(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(10, 1)
        self.second = nn.Linear(30, 10)
        self.first = nn.Linear(8, 30)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return self.last(torch.relu(self.second(self.drop(torch.relu(self.first(x))))))


job = join_seeded()
model = DDP(Shuffled(), bucket_cap_mb=0.0001)
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
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
