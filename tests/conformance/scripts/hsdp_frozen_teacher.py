"""Distillation: a sharded teacher has no gradients, so no backward frees its root's weights: they stay gathered from the first step on."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")


def network(width):
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, width), nn.Tanh(), nn.Linear(width, 4))
    for index in (1, 3):
        fully_shard(model[index], mesh=mesh)
    return fully_shard(model, mesh=mesh)


teacher, student = network(32).requires_grad_(False), network(8)
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-2)
job.register(teacher=teacher, student=student, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(6, 8)
    with torch.no_grad():
        wanted = teacher(inputs).softmax(1)
    loss = nn.functional.cross_entropy(student(inputs), wanted)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for step in job.steps(12):
    trace.line(f"step {step}", loss=train_step(step))

trace.final(model=student, optimizer=optimizer)
