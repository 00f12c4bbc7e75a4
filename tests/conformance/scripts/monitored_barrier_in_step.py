"""A monitored_barrier in each step and a plain barrier in each evaluation, as put in to look for a hang."""

# group: parallel
# expect: bitwise

from datetime import timedelta

from _common import DDP, dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join("gloo")
torch.manual_seed(0)
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    dist.monitored_barrier(timeout=timedelta(minutes=5))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    dist.barrier()
    model.eval()
    with torch.no_grad():
        total = model(torch.ones(2, 8)).sum()
    model.train()
    dist.barrier()
    return total.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", total=evaluate())

trace.final(model=model, optimizer=optimizer)
