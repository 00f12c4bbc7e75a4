"""WeightedRandomSampler with replacement, which draws from the global stream of each rank."""

# group: data
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, torch
from _trace import Trace
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

job = join_seeded()
model = DDP(mlp(8, 16, 2, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
labels = (torch.rand(60) < 0.2).long()
data = TensorDataset(torch.randn(60, 8) + labels[:, None], labels)
weights = 1.0 / torch.bincount(labels)[labels]
torch.manual_seed(1 + job.rank)
loader = DataLoader(data, batch_size=4, sampler=WeightedRandomSampler(weights, num_samples=20))
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
