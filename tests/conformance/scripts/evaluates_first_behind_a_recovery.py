"""Every sixth step evaluates only, and returns before it drops the gradients of the step before. The first of these steps comes right after
a recovery, whose newcomer has no gradients: the other ranks must not treat theirs as part of the state.
"""

# group: loops
# expect: bitwise
# kills: forward@1:2 vote@5:0 backward@8:1 vote@11:2 forward@13:0

import time

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
STEPS = 18


@job.step
def iteration(step):
    if step % 6 == 5:
        model.eval()
        with torch.no_grad():
            inputs = torch.ones(4, 8)
            loss = nn.functional.mse_loss(model.module(inputs), inputs.prod(1, keepdim=True)).item()
        return loss
    model.train()
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    optimizer.step()
    if step == 4 and job.rank != 0:
        time.sleep(0.5)  # as at a slow disk; nothing waits for it: the loss of the next vote mostly finds these ranks between two steps
    return loss.item()


for step in job.steps(STEPS):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)
