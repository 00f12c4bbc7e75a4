"""SequentialLR: LinearLR, then CosineAnnealingLR, then ConstantLR."""

# group: schedules
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=4)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6, eta_min=1e-3)
constant = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=0.5, total_iters=20)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, cosine, constant], milestones=[4, 9])
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
