"""BatchNorm with broadcast_buffers=False: each rank keeps its own running statistics and evaluates with them."""

# group: ddp
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(64, 5))
model = DDP(net, broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(96, 1, 6, 6), torch.randint(5, (96,)))
loader = sharded_loader(data, 4)
held_out = torch.randn(9, 1, 6, 6)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    with torch.no_grad():
        total = model(held_out).softmax(1).amax(1).sum()
    model.train()
    dist.all_reduce(total)
    return total.item()


for images, labels in job.batches(loader, steps=12):
    loss = train_step(images, labels)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", confidence=evaluate())

trace.final(model=model, optimizer=optimizer)
