"""A wrapper that fetches one batch ahead, as for GPUs, iterates a loader by hand and is asked for the next one inside the step."""

# group: unregistered state
# expect: told US1402 "prefetcher"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Ahead:
    def __init__(self, loader):
        self.loader = loader
        self.iterator = iter(loader)
        self.ready = next(self.iterator)

    def next(self):
        batch = self.ready
        try:
            self.ready = next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            self.ready = next(self.iterator)
        return batch


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = random_dataset(60, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
prefetcher = Ahead(loader)


@job.step
def train_step():
    inputs, targets = prefetcher.next()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step()
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
