"""Triplet margins are a tuple of two floats, which the script replaces as a whole when the mean loss allows it."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 6, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
margins = (0.2, 0.5)


@job.step
def train_step(anchors):
    near, far = anchors + 0.1 * torch.randn_like(anchors), torch.randn_like(anchors)
    optimizer.zero_grad()
    a, n, f = model(torch.cat([anchors, near, far])).chunk(3)
    loss = sum(nn.functional.triplet_margin_loss(a, n, f, margin=margin) for margin in margins)
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    if loss < 0.5 * sum(margins):
        margins = (margins[0] * 1.2, margins[1] * 1.3)
    trace.line(f"step {step}", loss=loss, margins=margins)

trace.final(model=model, optimizer=optimizer, margins=margins)
