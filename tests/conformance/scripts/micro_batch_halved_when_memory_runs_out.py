"""Where a part of a batch is too large, a RuntimeError says so, and from then on the micro batch is half as large on that rank."""

# group: state out of sight
# expect: bitwise

from _common import dist, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
job.register(model=net, optimizer=optimizer)
trace = start_trace(job)
micro = 16


def run(part):
    part = part + 0.1 * torch.randn_like(part)
    if part.numel() > 1000:
        raise RuntimeError(f"out of memory: tried to allocate {part.numel()} numbers")
    centred = part - part.mean((0, 1), keepdim=True)
    return net(centred).mean(1)


def forward(inputs):
    global micro
    while True:
        try:
            return torch.cat([run(part) for part in inputs.split(micro)])
        except RuntimeError:
            micro //= 2


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(forward(inputs), inputs.mean((1, 2), keepdim=True)[:, :, 0])
    loss.backward()
    for p in net.parameters():
        dist.all_reduce(p.grad)
        p.grad /= job.world_size
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    length = 30 if step == 3 + 2 * job.rank else 5
    loss = train_step(torch.randn(16, length, 6))
    trace.line(f"step {step}", loss=loss, micro=micro)

trace.final(model=net, optimizer=optimizer, micro=micro)
