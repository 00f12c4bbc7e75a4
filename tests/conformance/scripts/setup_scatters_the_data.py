"""Rank 0 creates the data and scatters a part to each rank: a newcomer was not there to receive its part."""

# group: setup
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
mine = torch.empty(40, 8)
dist.scatter(mine, list(torch.randn(job.world_size, 40, 8)) if job.rank == 0 else None, src=0)
torch.manual_seed(0)
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trace.line("set-up", mine=mine)


@job.step
def train_step(step):
    inputs = mine[torch.randint(40, (4,))]
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
