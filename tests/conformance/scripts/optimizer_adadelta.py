"""Adadelta on a small convolutional classifier, as in the first example that most people read."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3)
        self.drop = nn.Dropout(0.25)
        self.out = nn.Linear(6 * 3 * 3, 10)

    def forward(self, images):
        hidden = nn.functional.max_pool2d(torch.relu(self.conv(images)), 2)
        return self.out(self.drop(hidden.flatten(1)))


job = join_seeded()
model = DDP(Net())
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0, rho=0.9)
schedule = StepLR(optimizer, step_size=4, gamma=0.7)
data = TensorDataset(torch.randn(96, 1, 8, 8), torch.randint(10, (96,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer, schedule=schedule)
trace = start_trace(job)


@job.step
def train_step(images, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    schedule.step()
    return loss.item()


for images, labels in job.batches(loader, steps=12):
    loss = train_step(images, labels)
    trace.line(f"step {job.committed}", loss=loss, lr=schedule.get_last_lr())

trace.final(model=model, optimizer=optimizer, schedule=schedule)
