"""ReduceLROnPlateau, fed with the loss of an evaluation every second step."""

# group: schedules
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.05)
data = random_dataset(96, 8, 1)
held_out = torch.randn(30, 8), torch.randn(30, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, schedule=schedule)
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
    model.eval()
    inputs, targets = (part[job.rank :: job.world_size] for part in held_out)
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), targets)
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 2 == 0:
        found = evaluate()
        schedule.step(found)
        trace.line(f"evaluation {job.committed}", loss=found, rate=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer, schedule=schedule)
