"""A GAN: generator and discriminator are two DDPs with two optimizers, trained in two steps of each iteration."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

NOISE = 6

job = join_seeded()
generator = DDP(nn.Sequential(nn.Linear(NOISE, 24), nn.ReLU(), nn.Linear(24, 8)))
discriminator = DDP(nn.Sequential(nn.Linear(8, 24), nn.LeakyReLU(0.2), nn.Dropout(0.2), nn.Linear(24, 1)))
generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
discriminator_optimizer = torch.optim.Adam(discriminator.parameters(), lr=2e-3, betas=(0.5, 0.999))
data = TensorDataset(torch.randn(96, 8) * 0.5 + 1)
loader = sharded_loader(data, 4)
job.register(nets=[generator, discriminator], optimizers={"g": generator_optimizer, "d": discriminator_optimizer})
trace = start_trace(job)
judge = nn.functional.binary_cross_entropy_with_logits


@job.step
def train_discriminator(real):
    with torch.no_grad():
        fake = generator(torch.randn(len(real), NOISE))
    discriminator_optimizer.zero_grad()
    verdict = discriminator(torch.cat([real, fake]))
    loss = judge(verdict, torch.cat([torch.ones(len(real), 1), torch.zeros(len(real), 1)]))
    loss.backward()
    discriminator_optimizer.step()
    return loss.item()


@job.step
def train_generator(count):
    generator_optimizer.zero_grad()
    verdict = discriminator(generator(torch.randn(count, NOISE)))
    loss = judge(verdict, torch.ones(count, 1))
    loss.backward()
    generator_optimizer.step()
    return loss.item()


for (real,) in job.batches(loader, steps=12):
    first = train_discriminator(real)
    trace.line(f"step {job.committed}", discriminator=first)
    second = train_generator(len(real))
    trace.line(f"step {job.committed}", generator=second)

trace.final(
    generator=generator,
    discriminator=discriminator,
    generator_optimizer=generator_optimizer,
    discriminator_optimizer=discriminator_optimizer,
)
