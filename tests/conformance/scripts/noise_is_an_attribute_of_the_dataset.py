"""The samples' noise is an attribute of the dataset, which puts it onto what the loader draws; each step makes it smaller."""

# group: state out of sight
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import Dataset


class Noisy(Dataset):
    def __init__(self, count):
        self.inputs = torch.randn(count, 8)
        self.noise = 1.0

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        clean = self.inputs[index]
        return clean + self.noise * torch.randn(8), clean.sum()[None]


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = Noisy(192)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    data.noise *= 0.85
    return loss.item()


for inputs, targets in job.batches(loader, steps=14):
    loss = train_step(inputs, targets)
    trace.line(f"step {job.committed}", loss=loss, inputs=inputs, noise=data.noise)

trace.final(model=model, optimizer=optimizer, noise=data.noise)
