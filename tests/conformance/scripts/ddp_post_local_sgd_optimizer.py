"""torch's PostLocalSGDOptimizer averages parameters after its step, from step 4 on: too late for the first step to show it."""

# ranks: 4
# group: ddp
# expect: refused US4793

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

job = join_seeded()
pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
model = DDP(mlp(8, 24, 1, nn.ReLU))
model.register_comm_hook(PostLocalSGDState(None, pairs[job.rank // 2], start_localSGD_iter=4), post_localSGD_hook)
local = torch.optim.SGD(model.parameters(), lr=0.05)
optimizer = PostLocalSGDOptimizer(local, PeriodicModelAverager(period=2, warmup_steps=4))
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=local)
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
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=local)
