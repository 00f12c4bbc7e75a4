"""Reentrant activation checkpointing (checkpoint_sequential), whose backward runs a backward of its own."""

# group: precision
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.checkpoint import checkpoint_sequential


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 16)
        self.body = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.1)) for _ in range(4)))
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(checkpoint_sequential(self.body, 2, self.first(x), use_reentrant=True))


job = join_seeded()
model = DDP(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
