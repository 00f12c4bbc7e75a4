"""Post-local SGD: gradients are averaged in pairs of ranks, and a step of its own calls torch's PeriodicModelAverager, which counts."""

# ranks: 4
# group: reported by users
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

job = join_seeded()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
model = DDP(mlp(8, 24, 1, nn.ReLU), process_group=pairs[job.rank // 2])
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
averager = PeriodicModelAverager(period=3, warmup_steps=2)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    inputs, targets = samples[chosen], wanted[chosen]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.step
def average():
    averager.average_parameters(model.parameters())


for number in job.steps(12):
    loss = train_step()
    average()
    trace.line(f"step {number}", loss=loss, averager=averager.step)

trace.final(model=model, optimizer=optimizer)
