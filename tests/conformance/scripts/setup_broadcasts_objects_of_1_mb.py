"""Rank 0 distributes a table of 1 MB with broadcast_object_list before training starts."""

# group: setup
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
table = [None, None]
if job.rank == 0:
    table = [torch.randn(250, 1000), {"names": [f"sample {number}" for number in range(250)]}]
dist.broadcast_object_list(table, src=0)
rows, names = table[0], table[1]["names"]
torch.manual_seed(0)
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trace.line("set-up", rows=rows, names=names)


@job.step
def train_step(step):
    inputs = rows[torch.randint(250, (4,)), :8]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
