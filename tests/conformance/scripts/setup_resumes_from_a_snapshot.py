"""Training starts from a snapshot in a file: weights, moments and the step at which the data continues."""

# group: setup
# expect: bitwise

import tempfile
from pathlib import Path

from _common import DDP, dist, mlp, nn, start_trace, torch

import understudy

job = understudy.join()
folder = tempfile.TemporaryDirectory()  # a snapshot of an earlier run, made here so that the script needs nothing else
path = Path(folder.name, "snapshot.pt")
torch.manual_seed(0)
net = mlp(8, 16, 1, nn.GELU)
earlier = torch.optim.AdamW(net.parameters(), lr=1e-2)
for _ in range(3):
    net(torch.randn(4, 8)).square().mean().backward()
    earlier.step()
    earlier.zero_grad()
torch.save({"model": net.state_dict(), "optimizer": earlier.state_dict(), "step": 3}, path)
dist.barrier()

snapshot = torch.load(path, weights_only=True)
net = mlp(8, 16, 1, nn.GELU)
net.load_state_dict(snapshot["model"])
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
optimizer.load_state_dict(snapshot["optimizer"])
folder.cleanup()
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
trace.line("set-up", step=snapshot["step"])


@job.step
def train_step(step):
    inputs = torch.randn(4, 8) / (snapshot["step"] + step)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
