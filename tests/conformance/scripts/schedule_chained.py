"""ChainedScheduler over ExponentialLR and StepLR, on two groups of parameters with their own rates."""

# group: schedules
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.SGD(
    [{"params": [p for p in model.parameters() if p.dim() > 1], "lr": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2]}],
    lr=0.02,
    momentum=0.9,
)
falling = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.9)
steps = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.5)
schedule = torch.optim.lr_scheduler.ChainedScheduler([falling, steps], optimizer=optimizer)
data = random_dataset(96, 8, 1)
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
    schedule.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, rate=schedule.get_last_lr())

trace.final(model=model, optimizer=optimizer, schedule=schedule)
