"""One optimizer trains the body for five steps, then another one the head, in turns; each drops its own gradients only, so those of the
other phase remain in the meantime.
"""

# group: loops
# expect: bitwise
# kills: applied@4:0 forward@6:1 vote@8:2 forward@10:0 backward@11:1 applied@13:2

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
body, head = nn.Linear(8, 16), nn.Linear(16, 1)
model = DDP(nn.Sequential(body, nn.Tanh(), head), find_unused_parameters=True)
optimizers = [torch.optim.AdamW(part.parameters(), lr=5e-2) for part in (body, head)]
job.register(model=model, body=optimizers[0], head=optimizers[1])
trace = start_trace(job)


@job.step
def iteration(step):
    phase = step // 5 % 2
    body.requires_grad_(phase == 0)
    head.requires_grad_(phase == 1)
    optimizers[phase].zero_grad()
    inputs = torch.randn(4, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    optimizers[phase].step()
    return loss.item()


for step in job.steps(18):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, body=optimizers[0], head=optimizers[1])
