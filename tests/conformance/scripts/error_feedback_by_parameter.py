"""Gradients are averaged as bytes; a dict by parameter keeps the rounding errors for the next step (error feedback)."""

# group: precision
# expect: bitwise

from _common import dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = mlp(8, 16, 1, nn.ReLU)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
left_over = {parameter: torch.zeros_like(parameter) for parameter in model.parameters()}


def average(parameter):
    wanted = parameter.grad + left_over[parameter]
    low, high = torch.tensor(-1.0), torch.tensor(1.0)
    packed = ((wanted.clamp(low, high) - low) / (high - low) * 255).round().to(torch.uint8)
    left_over[parameter] = wanted - (packed.float() / 255 * (high - low) + low)
    everyones = [torch.empty_like(packed) for _ in range(job.world_size)]
    dist.all_gather(everyones, packed)
    parameter.grad = torch.stack([part.float() / 255 * (high - low) + low for part in everyones]).mean(0)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    for parameter in model.parameters():
        average(parameter)
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
