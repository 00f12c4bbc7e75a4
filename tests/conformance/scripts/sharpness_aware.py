"""SAM: weights are moved uphill by the first gradient, a second backward runs there, and they are put back before the step."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

RADIUS = 0.05

job = join_seeded()
model = DDP(mlp(8, 32, 3, nn.GELU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 8), torch.randint(3, (96,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@torch.no_grad()
def climb():
    parameters = list(model.parameters())
    before = [p.clone() for p in parameters]
    norm = torch.stack([p.grad.norm() for p in parameters]).norm()
    for parameter in parameters:
        parameter.add_(parameter.grad, alpha=(RADIUS / (norm + 1e-12)).item())
    return before


@torch.no_grad()
def descend(before):
    for parameter, value in zip(model.parameters(), before, strict=True):
        parameter.copy_(value)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    first = nn.functional.cross_entropy(model(inputs), labels)
    first.backward()
    before = climb()
    optimizer.zero_grad()
    second = nn.functional.cross_entropy(model(inputs), labels)
    second.backward()
    descend(before)
    optimizer.step()
    return first.item(), second.item()


for batch in job.batches(loader, steps=12):
    first, second = train_step(batch)
    trace.line(f"step {job.committed}", first=first, second=second)

trace.final(model=model, optimizer=optimizer)
