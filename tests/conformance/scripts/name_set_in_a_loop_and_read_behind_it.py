"""Names that a loop sets (the last batch, its loss) are read after it: a newcomer that skips the loop receives them."""

# group: data
# expect: bitwise
# kills: backward@2:1 forward@4:2 between@6:0 backward@8:1 forward@10:2

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
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


@job.section
def evaluate(batch):
    with torch.no_grad():
        loss = nn.functional.mse_loss(model.module(batch[0]), batch[1])
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=6):
    loss = train_step(batch, 1.0)
    trace.line(f"step {job.committed}", loss=loss)

trace.line("evaluation", loss=evaluate(batch))
scale = 0.5 if loss < 1 else 0.25

for batch in job.batches(loader, steps=6):
    loss = train_step(batch, scale)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
