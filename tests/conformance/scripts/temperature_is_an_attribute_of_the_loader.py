"""The temperature of the targets is an attribute that the script has put onto its DataLoader; each step lowers it."""

# group: state out of sight
# expect: told US1423 "loader.temperature"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 5)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = sharded_loader(random_dataset(192, 8, 5), 4)
loader.temperature = 2.0
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, scores = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), (scores / loader.temperature).softmax(1))
    loss.backward()
    optimizer.step()
    loader.temperature *= 0.85
    return loss.item()


for batch in job.batches(loader, steps=14):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, temperature=loader.temperature)

trace.final(model=model, optimizer=optimizer, temperature=loader.temperature)
