"""The samples are lines of a CSV text; csv.DictReader gives the step as many as it needs."""

# group: state out of sight
# expect: told US1423 "reader._fieldnames"

import csv
import io

from _common import DDP, join_seeded, nn, start_trace, torch


def table(rows):
    lines = ["x,y,target"]
    for x, y in rows.tolist():
        lines.append(f"{x:.4f},{y:.4f},{x * y:.4f}")
    return io.StringIO("\n".join(lines))


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(2, 24), nn.ReLU(), nn.Linear(24, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
rows = torch.randn(300, 2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
reader = csv.DictReader(table(rows[job.rank :: job.world_size]))


def next_batch(count):
    found = []
    while len(found) < count:
        row = next(reader)
        found.append([float(row["x"]), float(row["y"]), float(row["target"])])
    return torch.tensor(found)


@job.step
def train_step():
    batch = next_batch(6)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch[:, :2]), batch[:, 2:])
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step()
    trace.line(f"step {step}", loss=loss, line=reader.line_num)

trace.final(model=model, optimizer=optimizer)
