"""A moving average that the script does not register: training does not depend on it, only the reports do."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = mlp(8, 24, 1, nn.ReLU)
model = DDP(net)
average = {name: value.clone() for name, value in net.state_dict().items()}
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
held_out = torch.randn(12, 8), torch.randn(12, 1)
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
    for name, value in net.state_dict().items():
        average[name].lerp_(value, 0.2)
    return loss.item()


@job.section
def evaluate():
    with torch.no_grad():
        output = torch.func.functional_call(net, average, (held_out[0][job.rank :: 3],))
        loss = nn.functional.mse_loss(output, held_out[1][job.rank :: 3])
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer, average=average)
