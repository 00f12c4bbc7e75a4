"""DDP with batch normalization and evaluations through it: a forward without gradients decides whether the next one broadcasts buffers."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
model = DDP(net, bucket_cap_mb=0.001)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    inputs = torch.randn(6, 8)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    with torch.no_grad():
        inputs = torch.randn(6, 8)
        return (model(inputs) - inputs.sum(1, keepdim=True)).square().mean().item()


for step in job.steps(10):
    trace.line(f"step {step}", loss=train_step())
    if step % 2 == 1:
        trace.line(f"evaluation {step}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
