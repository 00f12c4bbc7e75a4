"""Training has two modes, named by a string: the smoothed loss, a second global, decides when warm-up ends."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
mode, smooth = "warm-up", None


@job.step
def train_step(inputs):
    targets = inputs.sum(1, keepdim=True)
    optimizer.zero_grad()
    output = model(inputs)
    loss = nn.functional.l1_loss(output, targets) if mode == "warm-up" else nn.functional.mse_loss(output, targets)
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    smooth = loss if smooth is None else 0.7 * smooth + 0.3 * loss
    if mode == "warm-up" and step >= 3 and smooth < 2.5:
        mode = "main"
    trace.line(f"step {step}", loss=loss, mode=mode, smooth=smooth)

trace.final(model=model, optimizer=optimizer, mode=mode)
