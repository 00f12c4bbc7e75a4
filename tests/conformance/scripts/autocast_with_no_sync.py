"""Autocast, accumulation of three micro-batches under no_sync, and clipping of the gradient's norm, all in one step."""

# group: precision
# expect: bitwise

import contextlib

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

PARTS = 3

job = join_seeded()
model = DDP(mlp(8, 32, 4, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    total = 0.0
    for part in range(PARTS):
        inputs = torch.randn(4, 8)
        with contextlib.nullcontext() if part == PARTS - 1 else model.no_sync():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(inputs).float(), inputs[:, :4].argmax(1)) / PARTS
            loss.backward()
        total += loss.item()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total, norm.item()


for step in job.steps(12):
    loss, norm = train_step(step)
    trace.line(f"step {step}", loss=loss, norm=norm)

trace.final(model=model, optimizer=optimizer)
