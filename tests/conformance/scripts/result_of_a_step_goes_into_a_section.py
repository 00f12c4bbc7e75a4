"""Each rank's own loss, which the step returns, goes into the section after it, and from there into a registered average."""

# ranks: 2
# group: state
# expect: bitwise
# kills: evaluation@2:1 section vote@4:0 evaluation@6:1 backward@8:0 evaluation@9:1

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
own_average = job.state(value=0.0)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs, targets):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return {"loss": loss.detach(), "seen": len(inputs) + job.rank}


@job.section
def note(result):
    worst = result["loss"].clone()
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    own_average.value = 0.9 * own_average.value + result["loss"].item() + result["seen"] / worst.item()
    return own_average.value


for inputs, targets in job.batches(loader, steps=12):
    found = train_step(inputs, targets)
    trace.line(f"average {job.committed}", average=note(found))

trace.final(model=model, optimizer=optimizer, average=own_average.value)
