"""Gradients averaged by hand with async_op=True: all are started, then all are waited for, inside the step."""

# group: parallel
# expect: bitwise

from _common import dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = mlp(8, 32, 1, nn.GELU)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in model.parameters()]
    for work in works:
        work.wait()
    for parameter in model.parameters():
        parameter.grad.div_(job.world_size)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
