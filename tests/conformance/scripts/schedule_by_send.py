"""A generator that is driven by send."""

# group: reported by users
# expect: told US1404 "control"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def controller(rate):
    while True:
        loss = yield rate
        rate *= 1.02 if loss < 5 else 0.98


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
control = controller(1e-2)
next(control)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    optimizer.param_groups[0]["lr"] = control.send(job.committed)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
