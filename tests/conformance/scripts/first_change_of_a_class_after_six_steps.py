"""An attribute of a class changes for the first time in the seventh step, and nothing else of the script changes: a rank that is lost
right after it has not handed it over.
"""

# ranks: 2
# group: unregistered state
# kills: forward@7:1
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


class Noise:
    scale = 1.0


@job.step
def train_step(inputs, targets):
    if job.committed >= 6:
        Noise.scale = 0.9 * Noise.scale + 0.1 * torch.rand(()).item()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets) * Noise.scale
    loss.backward()
    optimizer.step()
    return loss.item()


for inputs, targets in job.batches(loader, steps=16):
    loss = train_step(inputs, targets)
    trace.line(f"step {job.committed}", loss=loss, scale=Noise.scale)

trace.final(model=model, optimizer=optimizer)
