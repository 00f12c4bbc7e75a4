"""As in the imagenet example: meters that all-reduce, validate, a rate adjusted each epoch, the best accuracy kept."""

# ranks: 3
# group: loops
# expect: told US4585 "losses"

from __future__ import annotations

import torch
import torch.distributed as dist
from _trace import Trace
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset

import understudy


class Meter:
    """Its sums start afresh with each epoch; they are part of the state, because an epoch may go on in a newcomer."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count = 0.0, 0

    def update(self, value, n):
        self.sum += value * n
        self.count += n

    def all_reduce(self):
        total = torch.tensor([self.sum, self.count], dtype=torch.float64)
        dist.all_reduce(total)
        self.sum, self.count = total.tolist()

    @property
    def mean(self):
        return self.sum / max(self.count, 1)

    def state_dict(self):
        return {"sum": self.sum, "count": self.count}

    def load_state_dict(self, state):
        self.sum, self.count = state["sum"], state["count"]


def accuracy(output, target, top=(1, 2)):
    order = output.topk(max(top), 1).indices
    return [(order[:, :k] == target[:, None]).any(1).float().mean().item() for k in top]


job = understudy.join()
torch.manual_seed(0)
body = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2))
net = nn.Sequential(body, nn.Flatten(), nn.Linear(96, 4))
model = DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
images, labels = torch.randn(84, 3, 8, 8), torch.randint(4, (84,))
train_data, val_data = TensorDataset(images[:60], labels[:60]), TensorDataset(images[60:], labels[60:])
train_sampler = DistributedSampler(train_data)
val_sampler = DistributedSampler(val_data, shuffle=False, drop_last=True)
train_loader = DataLoader(train_data, batch_size=4, sampler=train_sampler)
val_loader = DataLoader(val_data, batch_size=4, sampler=val_sampler)
losses, best = Meter(), torch.zeros(())
job.register(model=model, optimizer=optimizer, losses=losses, best=best)
torch.manual_seed(1 + job.rank)
trace = Trace(job.rank)


@job.step
def train_step(pictures, target):
    loss = nn.functional.cross_entropy(model(pictures), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.update(loss.item(), len(pictures))
    return loss.item()


@job.section
def validate():
    top1, top2, loss_meter = Meter(), Meter(), Meter()
    rest = Subset(val_data, range(len(val_sampler) * job.world_size, len(val_data)))
    model.eval()
    with torch.no_grad():
        for pictures, target in [*val_loader, *DataLoader(rest, batch_size=4)]:
            output = model.module(pictures)
            first, second = accuracy(output, target)
            loss_meter.update(nn.functional.cross_entropy(output, target).item(), len(pictures))
            top1.update(first, len(pictures))
            top2.update(second, len(pictures))
    model.train()
    for meter in (top1, top2, loss_meter):
        meter.all_reduce()
    return {"top1": top1.mean, "top2": top2.mean, "loss": loss_meter.mean}


for epoch in range(3):
    train_sampler.set_epoch(epoch)
    for group in optimizer.param_groups:
        group["lr"] = 0.1 * 0.5**epoch
    losses.reset()
    for pictures, target in job.batches(train_loader):
        loss = train_step(pictures, target)
        trace.line(f"step {job.committed}", loss=loss, mean=losses.mean)
    found = validate()
    best.fill_(max(best.item(), found["top1"]))
    trace.line(f"evaluation {epoch}", **found, best=best.item())

trace.final(model=model, optimizer=optimizer, losses=losses, best=best)
