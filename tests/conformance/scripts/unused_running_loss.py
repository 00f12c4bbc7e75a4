"""Harmless: the running loss of each rank, printed now and then and read by nothing else."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = random_dataset(72, 8, 1)
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


running_loss = 0.0
for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    running_loss += loss
    if job.committed % 4 == 0:
        print(f"[{job.committed:5d}] loss: {running_loss / 4:.3f}")
        running_loss = 0.0
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
