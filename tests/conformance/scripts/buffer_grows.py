"""A buffer of features grows by one row per rank in every step: torch.cat binds it to a new tensor."""

# group: state
# expect: bitwise

from _common import dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
        self.out = nn.Linear(32, 1)
        self.register_buffer("memory", torch.zeros(1, 16))

    def forward(self, x):
        hidden = self.body(x)
        weights = torch.softmax(hidden @ self.memory.T, dim=1)
        output = self.out(torch.cat([hidden, weights @ self.memory], dim=1))
        with torch.no_grad():
            rows = [torch.empty(16) for _ in range(dist.get_world_size())]
            dist.all_gather(rows, hidden.mean(0))
            self.memory = torch.cat([self.memory, torch.stack(rows)])
        return output


job = join_seeded()
model = Remembering()
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
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world_size
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, rows=len(model.memory))

trace.final(model=model, optimizer=optimizer)
