"""A mixer object pairs samples inside the step, with a random.Random of its own that is seeded by rank."""

# group: unregistered state
# expect: bitwise

import random

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class CutMix:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def __call__(self, inputs, targets):
        order = list(range(len(inputs)))
        self.random.shuffle(order)
        first = self.random.randrange(4)
        mixed = inputs.clone()
        mixed[:, first : first + 4] = inputs[order, first : first + 4]
        return mixed, 0.5 * (targets + targets[order])


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(72, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
cutmix = CutMix(100 + job.rank)


@job.step
def train_step(batch):
    inputs, targets = cutmix(*batch)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, next=cutmix.random.random())
