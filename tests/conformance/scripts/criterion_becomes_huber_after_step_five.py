"""The name `criterion` is bound to another function once five steps are done."""

# group: state out of sight
# expect: told US1423 "criterion"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


def squared(output, targets):
    return (output - targets).square().mean()


def huber(output, targets):
    return nn.functional.huber_loss(output, targets, delta=0.3)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(192, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
criterion = squared


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=14):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed == 5:
        criterion = huber

trace.final(model=model, optimizer=optimizer)
