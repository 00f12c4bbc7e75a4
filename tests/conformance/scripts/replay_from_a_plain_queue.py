"""Old batches circulate in a queue.Queue: the step removes the oldest one, trains on it, too, and adds the new one."""

# group: state out of sight
# expect: told US1423 "replay.queue"

import queue

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
replay = queue.Queue()


@job.step
def train_step(inputs):
    together = inputs
    if replay.qsize() == 3:
        together = torch.cat([inputs, replay.get()])
    replay.put(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(together), together.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
