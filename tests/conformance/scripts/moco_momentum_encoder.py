"""MoCo: the momentum encoder is updated before the forward, and a buffer holds a queue of keys of all ranks."""

# group: state
# expect: bitwise

import copy

from _common import DDP, dist, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class Contrast(nn.Module):
    def __init__(self, width=8, length=24, momentum=0.9):
        super().__init__()
        self.query = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, width))
        self.key = copy.deepcopy(self.query).requires_grad_(False)
        self.momentum = momentum
        self.register_buffer("queue", nn.functional.normalize(torch.randn(length, width), dim=1))
        self.register_buffer("place", torch.zeros((), dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.mul_(self.momentum).add_(fast, alpha=1 - self.momentum)

    @torch.no_grad()
    def enqueue(self, keys):
        everyone = [torch.empty_like(keys) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, keys)
        keys = torch.cat(everyone)
        start = int(self.place)
        self.queue[start : start + len(keys)] = keys
        self.place.fill_((start + len(keys)) % len(self.queue))

    def forward(self, one, other):
        queries = nn.functional.normalize(self.query(one), dim=1)
        with torch.no_grad():
            self.follow()
            keys = nn.functional.normalize(self.key(other), dim=1)
        right = (queries * keys).sum(1, keepdim=True)
        wrong = queries @ self.queue.clone().T
        self.enqueue(keys)
        return torch.cat([right, wrong], dim=1) / 0.2


job = join_seeded()
model = DDP(Contrast())
optimizer = torch.optim.SGD(model.module.query.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 10))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(samples):
    one, other = (samples + 0.1 * torch.randn_like(samples) for _ in range(2))
    logits = model(one, other)
    loss = nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for (samples,) in job.batches(loader, steps=12):
    loss = train_step(samples)
    trace.line(f"step {job.committed}", loss=loss, queue=model.module.queue)

trace.final(model=model, optimizer=optimizer)
