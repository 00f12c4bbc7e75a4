"""Each rank opens a port for metrics in its set-up and keeps it: no other process can open it in the meantime."""

# group: reported by users
# expect: bitwise

import os
import socket
import zlib

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
metrics = socket.socket()
metrics.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
metrics.bind(
    (
        "127.0.0.1",
        20_000 + zlib.crc32(os.environ.get("TRACE_OUT", "").encode()) % 10_000 + job.rank,
    )
)
metrics.listen()
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
