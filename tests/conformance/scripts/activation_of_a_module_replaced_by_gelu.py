"""A registered module keeps its activation as an attribute, a function, which is replaced by another one in step 6."""

# group: state out of sight
# expect: told US1423 "net.act"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 24), nn.Linear(24, 24), nn.Linear(24, 1)
        self.act = torch.relu

    def forward(self, inputs):
        return self.last(self.act(self.second(self.act(self.first(inputs)))))


job = join_seeded()
net = Net()
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(192, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    if job.committed == 5:
        net.act = nn.functional.gelu
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
