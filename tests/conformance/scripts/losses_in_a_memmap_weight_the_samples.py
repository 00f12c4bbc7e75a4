"""The last loss of each sample is written to a numpy memmap in a temporary folder of the process; later steps weight the samples by it."""

# group: state out of sight
# expect: told US1423 "losses"

import tempfile
from pathlib import Path

import numpy as np
from _common import DDP, join_seeded, mlp, nn, start_trace, torch

SAMPLES = 24

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
inputs, targets = torch.randn(3, SAMPLES, 8)[job.rank], torch.randn(3, SAMPLES, 1)[job.rank]
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
folder = tempfile.TemporaryDirectory(prefix="losses-")
losses = np.memmap(Path(folder.name) / "losses.bin", dtype=np.float32, mode="w+", shape=(SAMPLES,))
losses[:] = 1.0


@job.step
def train_step(indices):
    weights = torch.from_numpy(losses[indices.numpy()])
    optimizer.zero_grad()
    each = nn.functional.mse_loss(model(inputs[indices]), targets[indices], reduction="none").mean(1)
    losses[indices.numpy()] = each.detach().numpy()
    loss = (each * weights / weights.mean()).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randperm(SAMPLES)[:8])
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, losses=np.array(losses))
