"""What a section saves is computed where it is called: among its arguments."""

# group: reported by users
# expect: told US1133

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


def expensive(net):
    return sum(parameter.sum().item() for parameter in net.parameters()) + float(net(torch.ones(1, 8)).detach())


@job.section
def save(value):
    trace.line(f"saved at {job.committed}", value=value)


for step in job.steps(12):
    if step % 3 == 2:
        save(expensive(model))
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
