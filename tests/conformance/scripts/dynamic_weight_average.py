"""Dynamic weight average: each epoch weighs its losses by how they fell over the two epochs before, from a list of means."""

# group: unregistered state
# expect: bitwise

import math

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = join_seeded()
model = DDP(mlp(8, 24, 5, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(36, 8), torch.randint(4, (36,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
means = []  # of each epoch, for both losses


def task_weights(temperature=2.0):
    if len(means) < 2:
        return [1.0, 1.0]
    ratios = [math.exp(now / before / temperature) for now, before in zip(means[-1], means[-2], strict=True)]
    return [2 * ratio / sum(ratios) for ratio in ratios]


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    output = model(inputs)
    first = nn.functional.mse_loss(output[:, 0], inputs.sum(1))
    second = nn.functional.cross_entropy(output[:, 1:], labels)
    weights = task_weights()
    (weights[0] * first + weights[1] * second).backward()
    found = torch.stack([first, second]).detach()
    dist.all_reduce(found)
    optimizer.step()
    return [value / job.world_size for value in found.tolist()], weights


for epoch in range(5):
    sampler.set_epoch(epoch)
    totals = [0.0, 0.0]
    for batch in job.batches(loader):
        losses, weights = train_step(batch)
        totals = [total + loss for total, loss in zip(totals, losses, strict=True)]
        trace.line(f"step {job.committed}", losses=losses, weights=weights)
    means.append([total / len(loader) for total in totals])

trace.final(model=model, optimizer=optimizer, means=means)
