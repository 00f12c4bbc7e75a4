"""Shrink and perturb: every fifth step begins by shrinking the weights, which no comparison of the first steps can show."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@torch.no_grad()
def shrink(share):
    for parameter in model.parameters():
        parameter.mul_(share)


@job.step
def train_step(batch):
    inputs, targets = batch
    if job.committed % 5 == 4:
        shrink(0.7)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
