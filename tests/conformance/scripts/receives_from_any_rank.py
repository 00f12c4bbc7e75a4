"""Rank 0 receives from the others in any order, and stores what it gets by sender."""

# group: parallel
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    everyones = torch.zeros(job.world_size, 8)
    if job.rank == 0:
        for _ in range(job.world_size - 1):
            mean = torch.empty(8)
            sender = dist.recv(mean, tag=step)
            everyones[sender] = mean
    else:
        dist.send(inputs.mean(0), 0, tag=step)
    dist.broadcast(everyones, 0)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs + 0.1 * everyones.sum(0)), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
