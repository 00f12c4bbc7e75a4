"""ASGD keeps averages of the parameters in its state; an evaluation swaps them in and out again."""

# group: optimizers
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.ASGD(model.parameters(), lr=5e-2, t0=3, weight_decay=1e-5)
data = random_dataset(96, 8, 1)
held_out = torch.randn(15, 8), torch.randn(15, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    kept = {}
    for parameter in model.parameters():
        kept[parameter] = parameter.data.clone()
        parameter.data.copy_(optimizer.state[parameter]["ax"])
    model.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.module(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    model.train()
    dist.all_reduce(loss)
    for parameter, values in kept.items():
        parameter.data.copy_(values)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
