"""Adam with amsgrad (a third moment) and weight decay, with an evaluation of all ranks every four steps."""

# group: optimizers
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(10, 24, 2, nn.Tanh))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, amsgrad=True, weight_decay=1e-4)
data = random_dataset(96, 10, 2)
held_out = random_dataset(24, 10, 2)
loader = sharded_loader(data, 4)
test_loader = DataLoader(held_out, batch_size=4, sampler=DistributedSampler(held_out, shuffle=False))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    total = torch.zeros(())
    with torch.no_grad():
        for inputs, targets in test_loader:
            total += nn.functional.mse_loss(model(inputs), targets)
    model.train()
    dist.all_reduce(total)
    return total.item() / (len(test_loader) * job.world_size)


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 4 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
