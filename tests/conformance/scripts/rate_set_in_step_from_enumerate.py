"""The step sets the learning rate from a number that enumerate counts: a newcomer counts from 0, and parts from its replicas."""

# group: unregistered state
# ranks: 2
# kills: backward@5:1
# expect: told US1451 "number"

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch, number):
    inputs, targets = batch
    optimizer.param_groups[0]["lr"] = 0.1 / (1 + number)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for number, batch in enumerate(job.batches(loader)):
    loss = train_step(batch, number)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
