"""FSDP2 accumulates unreduced gradients over three transactions, so they exist in one process only."""

# ranks: 2
# group: fsdp
# expect: refused US4811

from _common import join_seeded, nn, start_trace, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

job = join_seeded()
model = fully_shard(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)), mesh=init_device_mesh("cpu", (2,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(last):
    model.set_requires_gradient_sync(last)
    loss = model(torch.randn(6, 8)).square().mean() / 3
    loss.backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for step in job.steps(9):
    trace.line(f"step {step}", loss=train_step(step % 3 == 2))

trace.final(model=model, optimizer=optimizer)
