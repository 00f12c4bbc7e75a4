"""Every sixth step evaluates only, and returns before it drops the gradients of the step before: a redo of it begins with these
gradients again.
"""

# group: loops
# expect: bitwise
# kills: forward@1:2 vote@5:0 backward@8:1 vote@11:2 forward@13:0

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
    return loss.item()


for step in job.steps(STEPS):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)
