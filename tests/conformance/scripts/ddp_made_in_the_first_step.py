"""A DistributedDataParallel is created inside the first step."""

# ranks: 2
# group: ddp
# expect: refused US4790

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
job.register(net=net, optimizer=optimizer)
trace = start_trace(job)
made = []


@job.step
def train_step():
    if not made:
        made.append(DDP(net))
    optimizer.zero_grad()
    loss = made[0](torch.randn(6, 8)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(6):
    trace.line(f"step {step}", loss=train_step())

trace.final(net=net, optimizer=optimizer)
