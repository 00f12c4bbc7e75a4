"""A curriculum that is a function of the number of steps: sequences get longer, dropout rises."""

# group: schedules
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
dropout = nn.Dropout(0.0)
model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 32), nn.GELU(), dropout, nn.Linear(32, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(text):
    dropout.p = min(0.3, 0.03 * job.committed)
    loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    length = 4 + 2 * (job.committed // 4)
    loss = train_step(torch.randint(0, 20, (4, length)))
    trace.line(f"step {step}", loss=loss, length=length, dropout=dropout.p)

trace.final(model=model, optimizer=optimizer)
