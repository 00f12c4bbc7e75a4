"""Each step saves the weights after its optimizer, the first one in a process after a warm-up, and checks that no older save came back."""

# group: loops
# expect: bitwise

import os
from pathlib import Path

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
job.ignore("newest")  # it tells of this process: a newcomer has saved nothing, and a step's save may be lost together with its rank
trace = start_trace(job)
saved = Path(os.environ.get("TRACE_OUT", ".")) / f"saved-{job.rank}.pt"
newest = None  # step that this process has saved; None: none yet


def save(step):
    global newest
    if newest is None:
        for _ in range(40):
            torch.ones(1024, 1024) @ torch.ones(1024, 1024)
    partial = saved.with_suffix(f".{os.getpid()}")
    torch.save({"step": step, "model": model.state_dict()}, partial)
    partial.rename(saved)
    newest = step


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    gone_back = newest is not None and torch.load(saved)["step"] < newest
    optimizer.step()
    save(step)
    return loss.item(), gone_back


for step in job.steps(12):
    loss, gone_back = train_step(step)
    trace.line(f"step {step}", loss=loss, gone_back=gone_back)

trace.final(model=model, optimizer=optimizer)
