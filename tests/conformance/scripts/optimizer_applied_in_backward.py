"""torch's optimizer in backward: it creates and steps an SGD for each parameter, unseen by the script."""

# group: optimizers
# expect: refused US4575

from _common import dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.optim import _apply_optimizer_in_backward

job = join_seeded()
model = mlp(8, 32, 1, nn.ReLU)


def average(gradient):
    dist.all_reduce(gradient)
    return gradient / job.world_size


for parameter in model.parameters():
    parameter.register_hook(average)
_apply_optimizer_in_backward(torch.optim.SGD, model.parameters(), {"lr": 0.02})
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model)
