"""The best model so far is kept in a registered copy, and loaded back at the end."""

# group: schedules
# expect: bitwise

import copy

from _common import DDP, dist, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.2), nn.Linear(32, 1)))
best_model = copy.deepcopy(model.module)
best_loss = torch.tensor(float("inf"))
held_out = torch.randn(30, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer, best_model=best_model, best_loss=best_loss)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    inputs = held_out[job.rank :: job.world_size]
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        found = evaluate()
        if found < best_loss.item():
            best_loss.fill_(found)
            best_model.load_state_dict(model.module.state_dict())
        trace.line(f"evaluation {job.committed}", loss=found, best=best_loss)

model.module.load_state_dict(best_model.state_dict())
trace.final(model=model, optimizer=optimizer, best_model=best_model, best_loss=best_loss)
