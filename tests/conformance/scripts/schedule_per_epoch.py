"""A schedule that is stepped at the end of each epoch, outside of the step."""

# group: schedules
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=6, power=2.0)
data = random_dataset(48, 8, 1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
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


for epoch in range(3):
    sampler.set_epoch(epoch)
    for batch in job.batches(loader):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss)
    schedule.step()
    trace.line(f"epoch {epoch}", rate=schedule.get_last_lr())

trace.final(model=model, optimizer=optimizer, schedule=schedule)
