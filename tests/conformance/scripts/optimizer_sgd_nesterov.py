"""SGD with Nesterov momentum and weight decay on a small residual network, under a linear warm-up."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(2, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.norm(self.conv1(x)))))


job = join_seeded()
net = nn.Sequential(nn.Conv2d(3, 8, 3), Block(8), nn.Dropout2d(0.1), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=6)
data = TensorDataset(torch.randn(72, 3, 8, 8), torch.randint(10, (72,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, schedule=schedule)
trace = start_trace(job)


@job.step
def train_step(images, labels):
    if torch.rand(()) < 0.5:
        images = images.flip(-1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


for images, labels in job.batches(loader, steps=12):
    loss = train_step(images, labels)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, schedule=schedule)
