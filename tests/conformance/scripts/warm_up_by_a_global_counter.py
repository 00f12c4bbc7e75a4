"""A hand-written warm-up: the step counts its calls in a module global and sets the learning rate of the groups by it."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

BASE, WARM_UP = 2e-2, 8

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=BASE)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)

iteration = 0


@job.step
def train_step(inputs):
    global iteration
    iteration += 1
    for group in optimizer.param_groups:
        group["lr"] = BASE * min(1.0, iteration / WARM_UP)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, rate=optimizer.param_groups[0]["lr"], iteration=iteration)

trace.final(model=model, optimizer=optimizer, iteration=iteration)
