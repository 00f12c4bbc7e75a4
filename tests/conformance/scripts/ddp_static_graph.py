"""DDP with a static graph, a part that is used twice, and a part that is never used."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.twice, self.never, self.last = nn.Linear(24, 24), nn.Linear(24, 24), nn.Linear(24, 1)
        self.deep = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(24, 24), nn.Tanh())])

    def forward(self, inputs):
        hidden = checkpoint(self.twice, torch.tanh(self.twice(inputs)), use_reentrant=False)
        return self.last(self.deep(hidden))


job = join_seeded()
model = DDP(Net(), static_graph=True, bucket_cap_mb=0.003)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    optimizer.zero_grad()
    inputs = torch.randn(5, 24)
    loss = (model(inputs) - inputs.sum(1, keepdim=True)).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(10):
    trace.line(f"step {step}", loss=train_step())

trace.final(model=model, optimizer=optimizer)
