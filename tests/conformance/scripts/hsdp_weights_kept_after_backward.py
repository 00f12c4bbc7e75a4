"""HSDP that keeps gathered weights between the parts of a batch (set_reshard_after_backward(False)) and frees them with the last."""

# ranks: 4
# group: fsdp
# expect: bitwise

from _common import join_seeded, nn, square_mesh, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
mesh = square_mesh("replicate", "shard")
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))
for index in (0, 3):
    fully_shard(model[index], mesh=mesh, reshard_after_forward=False)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    total = 0.0
    for last in (False, True):
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)
        inputs = torch.randn(4, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.abs().amax(1, keepdim=True)) / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    return total


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
