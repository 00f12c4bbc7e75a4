"""The script sets an attribute lr_scale on its optimizer, lowers it where the loss rises, and multiplies gradients by it."""

# group: state out of sight
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
optimizer.lr_scale, optimizer.last_loss = 1.0, float("inf")
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    for p in model.parameters():
        p.grad *= optimizer.lr_scale
    optimizer.step()
    optimizer.lr_scale *= 0.8 if mean.item() > optimizer.last_loss else 1.1
    optimizer.last_loss = mean.item()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, scale=optimizer.lr_scale)

trace.final(model=model, optimizer=optimizer, scale=optimizer.lr_scale)
