"""Importance sampling of noise levels: a table of mean losses, a numpy array in an object, is written in place by the step."""

# group: unregistered state
# expect: bitwise

import numpy
from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

LEVELS = 6


class LossAware:
    def __init__(self):
        self.table = numpy.ones(LEVELS)

    def draw(self, count):
        shares = numpy.sqrt(self.table) / numpy.sqrt(self.table).sum()
        levels = numpy.random.choice(LEVELS, count, p=shares)
        return torch.from_numpy(levels), torch.tensor(1 / (LEVELS * shares[levels]), dtype=torch.float32)

    def update(self, levels, losses):
        for level, loss in zip(levels, losses, strict=True):
            self.table[level] = 0.8 * self.table[level] + 0.2 * loss


job = join_seeded()
model = DDP(mlp(9, 32, 8, nn.SiLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
aware = LossAware()


@job.step
def train_step(clean):
    levels, weights = aware.draw(len(clean))
    share = (levels[:, None] + 1) / LEVELS
    noise = torch.randn_like(clean)
    optimizer.zero_grad()
    guessed = model(torch.cat([(1 - share) * clean + share * noise, share], 1))
    losses = (guessed - noise).square().mean(1)
    (weights * losses).mean().backward()
    told = [torch.empty(2, len(clean)) for _ in range(job.world_size)]
    dist.all_gather(told, torch.stack([levels.float(), losses.detach()]))
    for each_levels, each_losses in told:
        aware.update(each_levels.long().tolist(), each_losses.tolist())
    optimizer.step()
    return losses.mean().item()


for step in job.steps(12):
    loss = train_step(torch.randn(5, 8))
    trace.line(f"step {step}", loss=loss, table=aware.table)

trace.final(model=model, optimizer=optimizer, table=aware.table)
