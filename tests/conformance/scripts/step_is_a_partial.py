"""The step is a partial; a dict among its arguments has a rank's own average of losses, which sets the noise of the next step."""

# group: unregistered state
# expect: bitwise

import functools

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + job.rank)
trace = start_trace(job)


def train(state, batch, noise):
    inputs, targets = batch
    inputs = inputs + noise * state["smooth"] * torch.randn_like(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    state["smooth"] = 0.9 * state["smooth"] + 0.1 * loss.item()
    optimizer.step()
    return loss.item()


train_step = job.step(functools.partial(train, {"smooth": 1.0}, noise=0.1))


for batch in job.batches(sharded_loader(random_dataset(192, 8, 1), 4), steps=16):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
