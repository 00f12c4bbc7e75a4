"""As in BEGAN: a balance is a plain global; the second step of an iteration changes it, the first one reads it."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch

job = join_seeded()
generator = DDP(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 8)))
critic = DDP(nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)))
first = torch.optim.Adam(critic.parameters(), lr=2e-3)
second = torch.optim.Adam(generator.parameters(), lr=2e-3)
job.register(generator=generator, critic=critic, first=first, second=second)
trace = start_trace(job)
balance = 0.0


def off(network, samples):
    return (network(samples) - samples).abs().mean()


@job.step
def train_critic(real):
    first.zero_grad()
    with torch.no_grad():
        fake = generator.module(torch.randn(len(real), 4))
    loss = off(critic, real) - balance * off(critic.module, fake)
    loss.backward()
    first.step()
    return loss.item()


@job.step
def train_generator(real):
    global balance
    second.zero_grad()
    loss = off(critic.module, generator(torch.randn(len(real), 4)))
    loss.backward()
    gap = 0.5 * off(critic.module, real).detach() - loss.detach()
    dist.all_reduce(gap)
    balance = min(1.0, max(0.0, balance + 0.3 * gap.abs().item() / job.world_size))
    second.step()
    return loss.item()


for step in job.steps(8):
    real = torch.tanh(torch.randn(5, 8) + 1)
    critic_loss = train_critic(real)
    generator_loss = train_generator(real)
    trace.line(f"step {step}", critic=critic_loss, generator=generator_loss, balance=balance)

trace.final(generator=generator, critic=critic, first=first, second=second, balance=balance)
