"""Two DistributedDataParallel over one module alternate, with different bucket sizes; one of them is first used in step 3."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(*[part for _ in range(5) for part in (nn.Linear(24, 24), nn.Tanh())], nn.Linear(24, 1))
models = [DDP(net, bucket_cap_mb=0.003), DDP(net, bucket_cap_mb=0.01)]
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
job.register(net=net, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(model):
    optimizer.zero_grad()
    inputs = torch.randn(5, 24)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step(models[step >= 3 and step % 2]))

trace.final(net=net, optimizer=optimizer)
