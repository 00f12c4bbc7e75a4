"""torch's AveragedModel as an exponential average, updated after each step and evaluated every third one."""

# group: state
# expect: told US4585 "average"

from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
model = DDP(net)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
held_out = torch.randn(12, 8), torch.randn(12, 1)
loader = sharded_loader(data, 4)
job.register(model=model, average=average, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    average.update_parameters(net)
    return loss.item()


@job.section
@torch.no_grad()
def evaluate():
    average.eval()
    loss = nn.functional.mse_loss(average(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, average=average, optimizer=optimizer)
