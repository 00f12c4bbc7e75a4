"""Step 10 measures the scale of the inputs again and puts it into the old tensor's .data, which did not change before."""

# group: state out of sight
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
scale = torch.ones(8)


@job.step
def train_step(step, inputs):
    if step == 10:
        seen = inputs.square().mean(0)
        dist.all_reduce(seen)
        scale.data = scale / (seen / job.world_size).sqrt().mul(2)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs * scale), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(step, torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, scale=scale)

trace.final(model=model, optimizer=optimizer, scale=scale)
