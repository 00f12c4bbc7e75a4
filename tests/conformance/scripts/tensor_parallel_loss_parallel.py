"""Tensor parallelism whose cross-entropy works on sharded logits (loss_parallel), times two replicas."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import dist, join_seeded, nn, square_mesh, torch
from _trace import Trace
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module

job = join_seeded()
mesh = square_mesh("data", "tensor")
model = nn.Sequential(nn.Embedding(24, 16), nn.Linear(16, 24))
plan = {
    "0": RowwiseParallel(input_layouts=Replicate()),
    "1": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
}
parallelize_module(model, mesh["tensor"], plan)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, foreach=False)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1 + mesh.get_local_rank("data"))
trace = Trace(job.rank)


@job.step
def train_step(step):
    text = torch.randint(0, 24, (4, 7))
    with loss_parallel():
        loss = nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
    for parameter in model.parameters():
        gradient = parameter.grad.to_local()
        dist.all_reduce(gradient, group=mesh.get_group("data"))
        gradient.div_(2)
    mean = loss.full_tensor().detach()
    optimizer.step()
    return mean.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
