"""One mask of dropout is drawn in a step's first forward and used by all of its micro batches; the step drops it at its end."""

# group: state out of sight
# expect: told US4585 "masks"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

masks = {}


class SharedDropout(nn.Module):
    def __init__(self, name, rate):
        super().__init__()
        self.name, self.rate = name, rate

    def forward(self, inputs):
        if self.name not in masks:
            masks[self.name] = (torch.rand(inputs.shape[1]) > self.rate) / (1 - self.rate)
        return inputs * masks[self.name]


job = join_seeded()
model = DDP(
    nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), SharedDropout("one", 0.3), nn.Linear(32, 32), nn.ReLU(), SharedDropout("two", 0.3), nn.Linear(32, 1)
    )
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(192, 8, 1), 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    optimizer.zero_grad()
    total = 0.0
    for inputs, targets in zip(*(part.chunk(2) for part in batch), strict=True):
        loss = nn.functional.mse_loss(model(inputs), targets) / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    masks.clear()
    return total


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
