"""Transactions called directly, without job.batches or job.steps."""

# group: data
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
inputs = torch.randn(job.world_size, 6, 8)[job.rank]
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(scale):
    optimizer.zero_grad()
    loss = scale * nn.functional.mse_loss(model(inputs + 0.1 * torch.randn(6, 8)), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in range(12):
    loss = train_step(1.0 if step < 6 else 0.5)
    trace.line(f"step {step}", loss=loss)
    if step % 4 == 3:
        trace.line(f"evaluation {step}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
