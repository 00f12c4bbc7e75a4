"""Rank 0 hands out batches with scatter, and losses come back to it with gather; gradients go through reduce and broadcast."""

# group: parallel
# expect: bitwise

from _common import dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = mlp(8, 16, 1, nn.GELU)
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.empty(4, 8)
    dist.scatter(inputs, list(torch.randn(job.world_size, 4, 8)) if job.rank == 0 else None, src=0)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    for parameter in model.parameters():
        dist.reduce(parameter.grad, 0)
        dist.broadcast(parameter.grad, 0)
    losses = [torch.empty(()) for _ in range(job.world_size)] if job.rank == 0 else None
    dist.gather(loss.detach(), losses, dst=0)
    optimizer.step()
    return [loss.item() for loss in losses] if job.rank == 0 else []


for step in job.steps(12):
    losses = train_step(step)
    trace.line(f"step {step}", losses=losses)

trace.final(model=model, optimizer=optimizer)
