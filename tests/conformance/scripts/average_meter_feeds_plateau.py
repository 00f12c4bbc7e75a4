"""An average meter of each rank's own losses, as in many examples; at the end of an epoch it feeds a plateau schedule."""

# group: unregistered state
# expect: told US1411 "epoch_meter"

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


class AverageMeter:
    def __init__(self):
        self.reset()

    def reset(self):
        self.val = self.avg = self.sum = 0.0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=0.3)
data = random_dataset(48, 8, 1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer, schedule=schedule)
trace = start_trace(job)
epoch_meter = AverageMeter()


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def mean_of_epoch():
    total = torch.tensor([epoch_meter.sum, epoch_meter.count], dtype=torch.float64)
    dist.all_reduce(total)
    return (total[0] / total[1]).item()


for epoch in range(3):
    sampler.set_epoch(epoch)
    epoch_meter.reset()
    for batch in job.batches(loader):
        loss = train_step(batch)
        epoch_meter.update(loss, len(batch[0]))
        trace.line(f"step {job.committed}", loss=loss, rate=optimizer.param_groups[0]["lr"])
    found = mean_of_epoch()
    schedule.step(found)
    trace.line(f"evaluation {epoch}", loss=found)

trace.final(model=model, optimizer=optimizer, schedule=schedule)
