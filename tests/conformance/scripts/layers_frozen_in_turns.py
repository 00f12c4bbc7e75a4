"""Another layer is frozen in each step, chosen inside the step; what has no gradient is neither reduced nor stepped."""

# group: state
# expect: bitwise

from _common import dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))
layers = [part for part in model if isinstance(part, nn.Linear)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    frozen = next((n for n, layer in enumerate(layers) if not layer.weight.requires_grad), -1)
    for number, layer in enumerate(layers):
        layer.requires_grad_(number != (frozen + 1) % len(layers))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for parameter in model.parameters():
        if parameter.grad is not None:
            dist.all_reduce(parameter.grad)
            parameter.grad /= job.world_size
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, trained=[layer.weight.requires_grad for layer in layers])

trace.final(model=model, optimizer=optimizer)
