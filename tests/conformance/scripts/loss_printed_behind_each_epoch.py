"""Each epoch is a function that returns its last loss, on which a learning rate depends; the script prints it and its last batch."""

# group: data
# expect: bitwise
# kills: backward@2:1 between@3:0 forward@4:2 between@7:1 backward@9:0

from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(48, 8, 1)
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch, scale):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = scale * nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def one_epoch(epoch, scale):
    sampler.set_epoch(epoch)
    best = None
    for inputs, targets in job.batches(loader):
        loss = train_step((inputs, targets), scale)
        best = loss
        trace.line(f"step {job.committed}", loss=loss)
    return loss, best, inputs.mean().item(), targets.sum().item()


scale = 1.0
for epoch in range(3):
    loss, best, mean, total = one_epoch(epoch, scale)
    scale = 0.5 if loss < 1 else 0.25
    trace.line(f"epoch {epoch}", loss=loss, best=best, mean=mean, total=total)

trace.final(model=model, optimizer=optimizer)
