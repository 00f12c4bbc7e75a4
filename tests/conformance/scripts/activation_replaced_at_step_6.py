"""After step 6 the activation is replaced under the same name, and after step 8 another one by one with the same attributes."""

# group: reported by users
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.act, self.second, self.gate, self.out = nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 8), nn.Tanh(), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.gate(self.second(self.act(self.first(x)))))


job = join_seeded()
net = Net()
model = DDP(net)
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
    if job.committed == 6:
        net.act = nn.GELU()
    if job.committed == 8:
        net.gate = nn.Sigmoid()
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, activations=repr([net.act, net.gate]))
