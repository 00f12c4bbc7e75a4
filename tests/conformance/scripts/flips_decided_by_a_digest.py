"""A hashlib object takes in every loss, and the bits of its digest decide which features of the next batch are flipped."""

# group: state out of sight
# expect: told US1423 "digest"

import hashlib

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
digest = hashlib.sha256(f"augmentation of rank {job.rank}".encode())


def flipped(inputs):
    bits = digest.digest()[0]
    signs = torch.tensor([-1.0 if bits >> place & 1 else 1.0 for place in range(8)])
    return inputs * signs


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(flipped(inputs)), inputs.abs().sum(1, keepdim=True))
    digest.update(loss.item().hex().encode())
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, digest=digest.hexdigest()[:8])

trace.final(model=model, optimizer=optimizer)
