"""Only the head is given to the optimizer, but the body is not frozen: its gradients are never dropped and grow from step to step, and the
norm to which all gradients are clipped grows with them.
"""

# group: loops
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
body, head = nn.Linear(8, 16), nn.Linear(16, 1)
model = DDP(nn.Sequential(body, nn.Tanh(), head))
optimizer = torch.optim.AdamW(head.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def iteration():
    optimizer.zero_grad()
    inputs = torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item(), norm.item()


for step in job.steps(12):
    loss, norm = iteration()
    trace.line(f"step {step}", loss=loss, norm=norm)
trace.final(model=model, optimizer=optimizer)
