"""The mean loss is reduced asynchronously and waited for in the next step: no redo of one step can restore that."""

# group: parallel
# expect: told US1121

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
pending = None


@job.step
def train_step(step):
    global pending
    known = 0.0
    if pending is not None:
        work, mean = pending
        work.wait()
        known = mean.item() / job.world_size
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    pending = dist.all_reduce(mean, async_op=True), mean
    optimizer.step()
    return known


for step in job.steps(12):
    known = train_step(step)
    trace.line(f"step {step}", known=known)

trace.final(model=model, optimizer=optimizer)
