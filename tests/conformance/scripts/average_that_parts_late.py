"""An average whose buffers are equal on all ranks until they diverge in a late step, and a rank that is lost right after the next vote."""

# group: state
# kills: applied@6:1
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.optim.swa_utils import AveragedModel

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 1))
averaged = AveragedModel(net)
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
job.register(model=model, averaged=averaged, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8)).square().mean()
    loss.backward()
    optimizer.step()
    if step >= 5:
        averaged.update_parameters(net)
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step(step))

trace.final(model=model, averaged=averaged, optimizer=optimizer)
