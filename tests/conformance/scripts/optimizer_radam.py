"""RAdam is plain momentum in its first steps; its own counter determines at which step it switches."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 40), nn.LeakyReLU(0.1), nn.Dropout(0.3), nn.Linear(40, 1), nn.Flatten(0)))
optimizer = torch.optim.RAdam(model.parameters(), lr=2e-2, betas=(0.9, 0.99))
data = TensorDataset(torch.randn(96, 8), torch.randint(2, (96,)).float())
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, seed=7))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    optimizer.zero_grad()
    loss = nn.functional.binary_cross_entropy_with_logits(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
