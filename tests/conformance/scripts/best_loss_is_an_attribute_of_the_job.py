"""The script puts its best loss and a count of bad steps onto the job object, and halves the rate by them."""

# group: state out of sight
# expect: told US1423 "job.best"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
job.best, job.bad = float("inf"), 0


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    job.bad = 0 if loss < job.best else job.bad + 1
    job.best = min(job.best, loss)
    if job.bad == 2:
        optimizer.param_groups[0]["lr"] /= 2
        job.bad = 0
    trace.line(f"step {step}", loss=loss, best=job.best, bad=job.bad)

trace.final(model=model, optimizer=optimizer)
