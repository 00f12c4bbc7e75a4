"""No DDP: the script flattens its gradients, all-reduces them in one call, and writes them back."""

# group: ddp
# expect: bitwise

from _common import dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = mlp(8, 32, 1, nn.GELU)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
for parameter in model.parameters():
    dist.broadcast(parameter.data, src=0)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def average_gradients():
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= job.world_size
    for gradient, piece in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(piece.view_as(gradient))


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    average_gradients()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
