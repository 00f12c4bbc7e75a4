"""The script calls next() on the iterator of a registered StatefulDataLoader, in a loop over job.steps."""

# group: data
# expect: refused US4578

from _common import DDP, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(180, 8, 1)
loader = StatefulDataLoader(data, batch_size=4, sampler=DistributedSampler(data))
job.register(model=model, optimizer=optimizer, loader=loader)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


iterator = iter(loader)
for step in job.steps(12):
    batch = next(iterator)
    loss = train_step(batch)
    trace.line(f"step {step}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
