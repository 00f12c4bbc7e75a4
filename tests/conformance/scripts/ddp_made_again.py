"""After training has begun, a second DistributedDataParallel is created over the same module."""

# ranks: 2
# group: ddp
# expect: refused US4790

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Linear(8, 1)
model = DDP(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
job.register(net=net, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = model(torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(6):
    if step == 2:
        model = DDP(net)
    trace.line(f"step {step}", loss=train_step())

trace.final(net=net, optimizer=optimizer)
