"""After each epoch a section saves with async_save, which continues during training, and waits for the previous save."""

# group: reported by users
# expect: bitwise
# kills: forward@2:1 evaluation@3:2 between@3:0 forward@7:1 evaluation@9:2 applied@10:0

import os
from pathlib import Path

import torch.distributed.checkpoint as dcp
from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch
from torch.distributed.checkpoint.state_dict import get_state_dict

job = join_seeded()
group = dist.new_group(backend="gloo")
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
under_way = None
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
def save(epoch):
    global under_way
    if under_way is not None:
        under_way.result()
    weights, moments = get_state_dict(model, optimizer)
    under_way = dcp.async_save({"model": weights, "optimizer": moments}, checkpoint_id=folder / f"epoch-{epoch}", process_group=group)


for epoch in range(4):
    for _ in job.steps(3):
        loss = train_step()
        trace.line(f"step {job.committed}", loss=loss)
    save(epoch)

under_way.result()
for epoch in range(4):
    weights, _ = get_state_dict(model, optimizer)
    dcp.load({"model": weights}, checkpoint_id=folder / f"epoch-{epoch}", no_dist=True)
    trace.line(f"checkpoint {epoch}", **weights)
trace.final(model=model, optimizer=optimizer)
