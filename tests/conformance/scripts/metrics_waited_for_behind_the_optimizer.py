"""The mean loss is reduced in the background of the optimizer's step, and rank 0 contributes its part later."""

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
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    if job.rank == 0:
        for _ in range(10):
            torch.ones(1024, 1024) @ torch.ones(1024, 1024)
    work = dist.all_reduce(mean, async_op=True)
    optimizer.step()
    work.wait()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
