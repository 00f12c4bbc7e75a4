"""Gradients are accumulated over three transactions with no_sync; batch normalization's buffers are not broadcast in between."""

# group: ddp
# expect: bitwise
# kills: backward@0:1 forward@2:2 verify@2:2 vote agreement@4:0 between@6:2 applied@8:1 forward@10:0 forward@10:2 backward@12:1

import contextlib

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
model = DDP(net, bucket_cap_mb=0.001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(last):
    with contextlib.nullcontext() if last else model.no_sync():
        inputs = torch.randn(6, 8)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean() / 3
        loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for step in job.steps(15):
    trace.line(f"step {step}", loss=train_step(step % 3 == 2))

trace.final(model=model, optimizer=optimizer)
