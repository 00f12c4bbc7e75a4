"""HSDP with reshard_after_forward=False: the weights stay gathered from forward to backward; an evaluation leaves them gathered."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import dist, join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.2), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 2))
held_out = torch.randn(32, 8)
for index in (0, 3):
    fully_shard(model[index], mesh=mesh, reshard_after_forward=False)
fully_shard(model, mesh=mesh, reshard_after_forward=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    loss = nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        right = (model(held_out).argmax(1) == (held_out[:, 0] > 0).long()).float().mean()
    model.train()
    dist.all_reduce(right)
    return right.item() / job.world_size


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", accuracy=evaluate())

trace.final(model=model, optimizer=optimizer)
