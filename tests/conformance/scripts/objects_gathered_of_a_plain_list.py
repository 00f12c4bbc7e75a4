"""Each rank gathers the mean losses of all ranks as objects, from a plain list, and weighs its loss by them."""

# group: parallel
# expect: told US4585 "losses"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)

losses = []


@job.step
def train_step(step):
    everyones = [None] * job.world_size
    dist.all_gather_object(everyones, {"mean": sum(losses[-4:]) / 4, "seen": len(losses)})
    weight = 1 + sum(told["mean"] for told in everyones)
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    (loss / weight).backward()
    optimizer.step()
    losses.append(loss.item())
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
