"""After each epoch a section saves the weights on rank 0; the checkpoints are compared at the end."""

# group: loops
# expect: bitwise
# kills: forward@2:1 evaluation@3:2 between@3:0 forward@7:1 evaluation@9:2 applied@10:0

import os
from pathlib import Path

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
held_out = torch.randn(30, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
folder = Path(os.environ.get("TRACE_OUT", "."))


@job.step
def train_step():
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate(epoch):
    model.eval()
    inputs = held_out[job.rank :: job.world_size]
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    if job.rank == 0:
        torch.save(model.module.state_dict(), folder / f"epoch-{epoch}.pt")
    dist.barrier()  # all ranks read it at the end
    return loss.item() / job.world_size


for epoch in range(4):
    for _ in job.steps(3):
        loss = train_step()
        trace.line(f"step {job.committed}", loss=loss)
    found = evaluate(epoch)
    trace.line(f"evaluation {epoch}", loss=found)

weights = {epoch: torch.load(folder / f"epoch-{epoch}.pt", weights_only=True) for epoch in range(4)}
trace.line("checkpoints", **{f"epoch {epoch}": part for epoch, part in weights.items()})
trace.final(model=model, optimizer=optimizer)
