"""Early stopping with two plain, unregistered names, best and bad, that change in the loop."""

# group: schedules
# expect: bitwise
# kills: forward@2:2 backward@10:1 forward@28:0

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
held_out = torch.randn(30, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    inputs = held_out[job.rank :: job.world_size]
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


best, bad = float("inf"), 0
for step in job.steps(60):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        found = evaluate()
        if found < 0.97 * best:
            best, bad = found, 0
        else:
            bad += 1
        trace.line(f"evaluation {job.committed}", loss=found, best=best, bad=bad)
        if bad >= 2:
            break

trace.final(model=model, optimizer=optimizer)
