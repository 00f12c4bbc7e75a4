"""Plain FSDP over all ranks: every shard is on one rank only, and the script is warned before its first step."""

# group: fsdp
# expect: told US4711

from _common import join_seeded, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.fsdp import fully_shard

job = join_seeded()
model = nn.Sequential(nn.Linear(8, 33), nn.ReLU(), nn.Dropout(0.1), nn.Linear(33, 1))
for layer in (model[0], model[3]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
