"""A pipeline of two stages (Schedule1F1B) in separate groups, times two replicas under DDP."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, nn, start_trace, torch
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import understudy

job = understudy.join()
number, copy = job.rank // 2, job.rank % 2  # ranks 0 and 1 hold the first stage, 2 and 3 the second
pipelines = [dist.new_group([column, column + 2]) for column in range(2)]
copies = [dist.new_group([2 * row, 2 * row + 1]) for row in range(2)]
torch.manual_seed(0)
model = (
    nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.1))
    if number == 0
    else nn.Sequential(nn.Linear(24, 12), nn.Tanh(), nn.Linear(12, 4))
)
stage = PipelineStage(model, number, 2, torch.device("cpu"), group=pipelines[copy])
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(8, 8, generator=torch.Generator().manual_seed(100 * step + copy))
    losses = []
    optimizer.zero_grad()
    if number == 0:
        schedule.step(inputs)
    else:
        schedule.step(target=inputs[:, :4].argmax(1), losses=losses)
    flat = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    dist.all_reduce(flat, group=copies[number])
    for parameter, mean in zip(model.parameters(), (flat / 2).split([p.numel() for p in model.parameters()]), strict=True):
        parameter.grad.copy_(mean.view_as(parameter))
    optimizer.step()
    return [loss.item() for loss in losses]


for step in job.steps(12):
    losses = train_step(step)
    trace.line(f"step {step}", losses=losses)

trace.final(model=model, optimizer=optimizer)
