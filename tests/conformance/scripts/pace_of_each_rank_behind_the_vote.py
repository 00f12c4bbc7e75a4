"""Each rank paces itself by its own loss, which the step records after optimizer.step: no other rank has that number."""

# group: unregistered state
# expect: told US4585 "own_loss"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
own_loss = 1.0


@job.step
def train_step(inputs):
    global own_loss
    optimizer.zero_grad()
    losses = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True), reduction="none")
    loss = losses[losses.detach() <= 1.5 * own_loss].sum() / len(inputs)
    loss.backward()
    optimizer.step()
    own_loss = 0.7 * own_loss + 0.3 * losses.mean().item()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, pace=own_loss)
