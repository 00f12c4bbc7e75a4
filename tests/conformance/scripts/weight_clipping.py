"""Weights are clamped at the top of each step, as in the first Wasserstein GAN: parameters change before the vote."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
critic = DDP(nn.Sequential(nn.Linear(6, 32), nn.LeakyReLU(0.2), nn.Dropout(0.1), nn.Linear(32, 1)))
optimizer = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
data = TensorDataset(torch.randn(96, 6) + 1)
loader = sharded_loader(data, 4)
job.register(critic=critic, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(real):
    for parameter in critic.parameters():
        parameter.data.clamp_(-0.1, 0.1)
    optimizer.zero_grad()
    loss = critic(torch.randn_like(real)).mean() - critic(real).mean()
    loss.backward()
    optimizer.step()
    return loss.item()


for (real,) in job.batches(loader, steps=12):
    loss = train_step(real)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(critic=critic, optimizer=optimizer)
