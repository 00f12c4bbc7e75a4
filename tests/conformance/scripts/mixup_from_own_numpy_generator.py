"""Mixup: the step draws its share from a Beta distribution, by a numpy Generator with the same seed on all ranks."""

# group: unregistered state
# expect: bitwise

import numpy
from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(mlp(8, 24, 4, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(72, 8), torch.randint(4, (72,)))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
rng = numpy.random.default_rng(42)


@job.step
def train_step(batch):
    inputs, labels = batch
    share = float(rng.beta(0.4, 0.4))
    order = torch.randperm(len(inputs))
    optimizer.zero_grad()
    logits = model(share * inputs + (1 - share) * inputs[order])
    loss = share * nn.functional.cross_entropy(logits, labels) + (1 - share) * nn.functional.cross_entropy(logits, labels[order])
    loss.backward()
    optimizer.step()
    return loss.item(), share


for batch in job.batches(loader, steps=12):
    loss, share = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, share=share)

trace.final(model=model, optimizer=optimizer, rng=rng)
