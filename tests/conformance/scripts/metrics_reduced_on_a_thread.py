"""A thread of the script reduces metrics on its own group while backward runs, and is joined before the optimizer."""

# group: parallel
# expect: bitwise

import threading

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for_metrics = dist.new_group()
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    metrics = torch.stack([inputs.mean(), inputs.std(), inputs.amax()])

    def reduce():
        for _ in range(3):
            dist.all_reduce(metrics, dist.ReduceOp.MAX, group=for_metrics)
            everyones = [torch.empty_like(metrics) for _ in range(job.world_size)]
            dist.all_gather(everyones, metrics * (1 + job.rank), group=for_metrics)
            metrics.add_(sum(everyones) / 10)

    thread = threading.Thread(target=reduce)
    thread.start()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    thread.join()
    for parameter in model.parameters():
        parameter.grad /= metrics.norm()
    optimizer.step()
    return loss.item(), metrics


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
