"""Each rank counts the labels that it has seen in a Counter; rare ones weigh more in its loss."""

# group: unregistered state
# expect: bitwise

from collections import Counter

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

CLASSES = 5

job = join_seeded()
model = DDP(mlp(8, 24, CLASSES, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(120, 8), torch.multinomial(torch.tensor([8.0, 4.0, 2.0, 1.0, 1.0]), 120, replacement=True))
loader = sharded_loader(data, 5)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
label_counts = Counter()


@job.step
def train_step(batch):
    inputs, labels = batch
    label_counts.update(labels.tolist())
    total = sum(label_counts.values())
    weights = torch.tensor([total / (CLASSES * (1 + label_counts[k])) for k in range(CLASSES)])
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels, weight=weights)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, counts=sorted(label_counts.items()))
