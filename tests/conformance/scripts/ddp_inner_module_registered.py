"""The module inside a DDP is registered instead of the DDP."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(*[part for _ in range(5) for part in (nn.Linear(24, 24), nn.Tanh())], nn.Linear(24, 1))
model = DDP(net, bucket_cap_mb=0.003)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=net, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    losses = []
    for _ in range(1):
        inputs = torch.randn(5, 24)
        loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
    return losses


for step in job.steps(10):
    trace.line(f"step {step}", losses=train_step())

trace.final(model=model, optimizer=optimizer)
