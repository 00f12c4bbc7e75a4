"""BYOL: the target network follows the online one after optimizer.step, faster or slower by a schedule of the step."""

# group: state
# expect: bitwise

import copy
import math

from _common import DDP, join_seeded, nn, start_trace, torch

STEPS = 12

job = join_seeded()
encoder = nn.Sequential(nn.Linear(10, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Linear(24, 8))
online = DDP(nn.Sequential(encoder, nn.Linear(8, 8)))
target = copy.deepcopy(encoder).requires_grad_(False)
optimizer = torch.optim.AdamW(online.parameters(), lr=3e-3)
samples = torch.randn(120, 10)
job.register(online=online, target=target, optimizer=optimizer)
trace = start_trace(job)


def distance(x, y):
    return 2 - 2 * nn.functional.cosine_similarity(x, y, dim=1).mean()


@job.step
def train_step(step):
    chosen = samples[torch.randint(len(samples), (6,))]
    one, other = (chosen + 0.2 * torch.randn_like(chosen) for _ in range(2))
    with torch.no_grad():
        wanted = target(torch.cat([other, one]))
    loss = distance(online(torch.cat([one, other])), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate = 1 - (1 - 0.9) * (math.cos(math.pi * step / STEPS) + 1) / 2
    with torch.no_grad():
        for slow, fast in zip(target.parameters(), encoder.parameters(), strict=True):
            slow.lerp_(fast, 1 - rate)
    return loss.item()


for step in job.steps(STEPS):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(online=online, target=target, optimizer=optimizer)
