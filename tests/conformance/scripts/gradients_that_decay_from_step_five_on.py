"""A momentum by hand that begins late: from step 5 on gradients are made smaller instead of being dropped, and the next ones are added."""

# group: loops
# expect: bitwise
# kills: forward@3:2 forward@6:1 vote@9:0 between@11:2

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def iteration(step):
    inputs = torch.randn(4, 8)
    if step < 5:
        optimizer.zero_grad()
    else:
        for parameter in model.parameters():
            parameter.grad.mul_(0.5)
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)
