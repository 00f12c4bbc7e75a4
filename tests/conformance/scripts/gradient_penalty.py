"""A critic with a gradient penalty: its loss holds the gradient of its output, so backward goes through it twice."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class PenalizedCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, real, fake):
        mixed = torch.lerp(real, fake, torch.rand(len(real), 1)).requires_grad_(True)
        (slope,) = torch.autograd.grad(self.net(mixed).sum(), mixed, create_graph=True)
        penalty = (slope.norm(dim=1) - 1).square().mean()
        return self.net(fake).mean() - self.net(real).mean(), penalty


job = join_seeded()
critic = DDP(PenalizedCritic())
optimizer = torch.optim.Adam(critic.parameters(), lr=3e-3, betas=(0.0, 0.9))
data = TensorDataset(torch.randn(96, 6) + 1)
loader = sharded_loader(data, 4)
job.register(critic=critic, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(real):
    optimizer.zero_grad()
    distance, penalty = critic(real, torch.randn_like(real))
    (distance + 10 * penalty).backward()
    optimizer.step()
    return distance.item(), penalty.item()


for (real,) in job.batches(loader, steps=12):
    distance, penalty = train_step(real)
    trace.line(f"step {job.committed}", distance=distance, penalty=penalty)

trace.final(critic=critic, optimizer=optimizer)
