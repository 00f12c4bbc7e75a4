"""The more the mean of the last losses falls, the more is dropped: a list of all mean losses, appended to ahead of the optimizer."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
losses = []


@job.step
def train_step(inputs):
    recent = losses[-4:]
    dropped = 0.0 if not recent else 0.5 / (1 + sum(recent) / len(recent))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(nn.functional.dropout(inputs, dropped)), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    losses.append(mean.item() / job.world_size)
    optimizer.step()
    return loss.item(), dropped


for step in job.steps(12):
    loss, dropped = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, dropped=dropped)

trace.final(model=model, optimizer=optimizer, losses=losses)
