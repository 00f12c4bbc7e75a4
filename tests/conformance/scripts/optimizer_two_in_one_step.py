"""SGD for the embedding and AdamW for the rest, each with its own schedule, are stepped one after the other in one step."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
embedding = nn.Embedding(40, 12)
body = nn.Sequential(nn.Flatten(), nn.Linear(60, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 4))
model = DDP(nn.Sequential(embedding, body))
slow = torch.optim.SGD(embedding.parameters(), lr=0.5, momentum=0.5)
fast = torch.optim.AdamW(body.parameters(), lr=2e-3)
schedules = [
    torch.optim.lr_scheduler.ExponentialLR(slow, 0.95),
    torch.optim.lr_scheduler.LambdaLR(fast, lambda step: min(1.0, (step + 1) / 6)),
]
data = TensorDataset(torch.randint(40, (96, 5)), torch.randint(4, (96,)))
loader = sharded_loader(data, 4)
job.register(model=model, slow=slow, fast=fast, schedules=schedules)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    slow.zero_grad()
    fast.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    slow.step()
    fast.step()
    for schedule in schedules:
        schedule.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, slow=slow, fast=fast, first=schedules[0], second=schedules[1])
