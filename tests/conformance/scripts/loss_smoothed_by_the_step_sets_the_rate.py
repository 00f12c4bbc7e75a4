"""The step smooths its loss in a plain name and returns it; between steps the script sets the rate of learning by that."""

# group: schedules
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)

smooth = None


@job.step
def train_step(step):
    global smooth
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    smooth = mean.item() if smooth is None else 0.9 * smooth + 0.1 * mean.item()
    return smooth


for step in job.steps(12):
    loss = train_step(step)
    optimizer.param_groups[0]["lr"] = 0.05 / (1 + loss)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
