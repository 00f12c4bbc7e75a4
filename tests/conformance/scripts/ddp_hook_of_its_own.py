"""A hook of the script averages gradients, and damps them by a count of its calls that is in no state_dict."""

# group: ddp
# expect: refused US4793

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Damping:
    def __init__(self):
        self.calls = 0


def damped_average(damping, bucket):
    damping.calls += 1
    factor = min(1.0, damping.calls / 20) / dist.get_world_size()
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0].mul_(factor))


job = join_seeded()
net = mlp(8, 32, 1, nn.GELU)
model = DDP(net, bucket_cap_mb=0.0005)
damping = Damping()
model.register_comm_hook(damping, damped_average)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
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


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, calls=damping.calls)

trace.final(model=model, optimizer=optimizer)
