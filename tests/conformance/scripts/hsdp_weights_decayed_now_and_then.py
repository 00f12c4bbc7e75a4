"""Every seventh step, the seventh first, makes the weights smaller before the forward pass. They are DTensors, whose own version counters
change, but not those of the memory below.
"""

# ranks: 4
# group: fsdp
# expect: bitwise
# kills: backward@3:0 forward@13:1

from _common import join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    if step % 7 == 6:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.9)
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs[:, :2])
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(16):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
