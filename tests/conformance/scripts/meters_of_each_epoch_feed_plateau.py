"""A function makes meters for each epoch, of the time between steps and of the losses in the steps; the learning rate depends on the mean
loss of the epoch. In a step that is redone a survivor's meter is restored, and a newcomer has that of its rank.
"""

# group: schedules
# expect: bitwise
# kills: forward@2:1 backward@6:2 vote@9:0 between@10:1 forward@13:2

import time

from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class Meter:
    def __init__(self):
        self.sum = 0
        self.count = 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n


def train(epoch):
    clock = Meter()
    losses = Meter()

    @job.step
    def train_step(batch):
        inputs, targets = batch
        loss = nn.functional.mse_loss(model(inputs), targets)
        losses.update(loss.item(), len(inputs))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    loader.sampler.set_epoch(epoch)
    end = time.time()
    for batch in job.batches(loader):
        clock.update(time.time() - end, 1)
        train_step(batch)
        end = time.time()

    @job.section
    def mean():
        total = torch.tensor([losses.sum, losses.count], dtype=torch.float64)
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    return mean()


job = join_seeded()
model = DDP(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 8)
job.register(model=model, optimizer=optimizer, schedule=schedule)
trace = start_trace(job)
for epoch in range(5):
    found = train(epoch)
    schedule.step(found)
    trace.line(f"epoch {epoch}", loss=found, rate=optimizer.param_groups[0]["lr"])
trace.final(model=model, optimizer=optimizer, schedule=schedule)
