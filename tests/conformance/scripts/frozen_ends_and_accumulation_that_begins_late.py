"""The first and the last layer are frozen, so they never have gradients; from step 6 on gradients are accumulated over two transactions,
while all steps before had dropped theirs.
"""

# group: loops
# expect: bitwise
# kills: forward@3:2 applied@5:0 forward@7:1 vote@8:0 backward@9:2

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1))
layers[0].requires_grad_(False)
layers[-1].requires_grad_(False)
model = DDP(layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def iteration(step):
    inputs = torch.randn(4, 8)
    if step < 6 or step % 2 == 0:
        optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.prod(1, keepdim=True))
    loss.backward()
    if step < 6 or step % 2 == 1:
        optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = iteration(step)
    trace.line(f"step {step}", loss=loss)
trace.final(model=model, optimizer=optimizer)
