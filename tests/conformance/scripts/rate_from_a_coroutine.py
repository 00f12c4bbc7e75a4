"""A generator receives each loss and yields the learning rate: it has its own best loss and patience in its frame."""

# group: state out of sight
# expect: told US1404 "rates"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def patience(rate, limit):
    best, bad = float("inf"), 0
    while True:
        loss = yield rate
        if loss < best:
            best, bad = loss, 0
        else:
            bad += 1
        if bad == limit:
            rate, bad = rate / 2, 0
        rate *= 0.99


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
rates = patience(0.05, limit=2)
next(rates)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    rate = rates.send(mean.item() / job.world_size)
    loss.backward()
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.step()
    return loss.item(), rate


for step in job.steps(14):
    loss, rate = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, rate=rate)

trace.final(model=model, optimizer=optimizer)
