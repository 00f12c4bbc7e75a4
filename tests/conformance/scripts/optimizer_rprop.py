"""Rprop uses signs only: it keeps the previous gradient and a step size of each weight."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(7, 20), nn.Softplus(), nn.Dropout(0.05), nn.Linear(20, 1)))
optimizer = torch.optim.Rprop(model.parameters(), lr=1e-3, etas=(0.5, 1.2), step_sizes=(1e-6, 1.0))
inputs, targets = torch.randn(60, 7), torch.randn(60, 1)
shard = slice(job.rank * 20, job.rank * 20 + 20)  # the whole of this rank's data in every step
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs[shard]), targets[shard])
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
