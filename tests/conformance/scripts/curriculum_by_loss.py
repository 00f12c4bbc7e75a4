"""A curriculum in a plain name: samples get harder once the mean loss has fallen far enough."""

# group: schedules
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step, hardness):
    inputs = hardness * torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


hardness = 0.5
for step in job.steps(12):
    loss = train_step(step, hardness)
    if loss < 0.1 * hardness:
        hardness *= 1.5
    trace.line(f"step {step}", loss=loss, hardness=hardness)

trace.final(model=model, optimizer=optimizer)
