"""AdamW in its foreach form, under a cosine schedule with restarts."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = join_seeded()
net = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.SiLU(), nn.Dropout(0.15), nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 3))
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, foreach=True, weight_decay=0.05)
schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=5)
data = TensorDataset(torch.randn(96, 12), torch.randint(3, (96,)))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), drop_last=True)
job.register(model=model, optimizer=optimizer, schedule=schedule)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    loss = nn.functional.cross_entropy(model(inputs), labels, label_smoothing=0.1)
    loss.backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, lr=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer, schedule=schedule)
