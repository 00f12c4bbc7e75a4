"""Parameters distributed by hand as DTensors: a row-sharded matrix on two ranks, times two replicas of it."""

# ranks: 4
# group: parallel
# expect: bitwise

from _common import join_seeded, nn, square_mesh, torch
from _trace import Trace
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

job = join_seeded()
mesh = square_mesh("data", "matrix")


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(distribute_tensor(torch.randn(8, 24) / 3, mesh, [Replicate(), Shard(1)]))
        self.second = nn.Parameter(distribute_tensor(torch.randn(24, 1) / 5, mesh, [Replicate(), Shard(0)]))

    def forward(self, x):
        return torch.tanh(x @ self.first) @ self.second


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1)
trace = Trace(job.rank)


@job.step
def train_step(step):
    whole = torch.randn(8, 8)  # the same on every rank, each replica works on one half
    inputs = distribute_tensor(whole, mesh, [Shard(0), Replicate()], src_data_rank=None)
    targets = distribute_tensor(whole.sum(1, keepdim=True), mesh, [Shard(0), Replicate()], src_data_rank=None)
    optimizer.zero_grad()
    loss = (model(inputs) - targets).square().mean()
    loss.backward()
    value = loss.full_tensor().item()
    for parameter in model.parameters():
        parameter.grad = parameter.grad.redistribute(placements=parameter.placements)
    optimizer.step()
    return value


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
