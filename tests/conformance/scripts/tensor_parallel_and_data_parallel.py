"""Tensor parallelism over two ranks times data parallelism over two: the script averages gradients among the replicas."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, join_seeded, nn, random_dataset, square_mesh, torch
from _trace import Trace
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, DistributedSampler

job = join_seeded()
mesh = square_mesh("data", "tensor")
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 16), nn.Dropout(0.1), nn.Linear(16, 1))
parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
data = random_dataset(96, 8, 1)
copy = mesh.get_local_rank("data")
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, num_replicas=2, rank=copy))
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + copy)  # ranks of one replica draw the same dropout
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for parameter in model.parameters():
        gradient = parameter.grad.to_local() if hasattr(parameter.grad, "to_local") else parameter.grad
        dist.all_reduce(gradient, group=mesh.get_group("data"))
        gradient.div_(2)
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
