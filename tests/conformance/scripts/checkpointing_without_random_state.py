"""Checkpointing with preserve_rng_state=False of a part without dropout, and noise from a registered generator outside of it."""

# group: precision
# expect: bitwise

from _common import DDP, join_seeded, nn, torch
from _trace import Trace
from torch.utils.checkpoint import checkpoint

noise = torch.Generator()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 8))
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        x = x + 0.1 * torch.randn(x.shape, generator=noise)
        return self.head(checkpoint(self.body, x, use_reentrant=False, preserve_rng_state=False))


job = join_seeded()
model = DDP(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer, noise=noise)
torch.manual_seed(1 + job.rank)
noise.manual_seed(50 + job.rank)
trace = Trace(job.rank)


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

trace.final(model=model, optimizer=optimizer, noise=noise)
