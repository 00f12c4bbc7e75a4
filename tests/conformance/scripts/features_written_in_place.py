"""Instance discrimination: the bank of all samples' features is an unregistered tensor, written in place."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(mlp(8, 24, 6, nn.GELU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
data = TensorDataset(torch.randn(36, 8), torch.arange(36))
loader = sharded_loader(data, 4)
bank = nn.functional.normalize(torch.randn(36, 6), dim=1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, indices = batch
    optimizer.zero_grad()
    features = nn.functional.normalize(model(inputs + 0.1 * torch.randn_like(inputs)), dim=1)
    loss = nn.functional.cross_entropy(features @ bank.T / 0.2, indices)
    loss.backward()
    mixed = 0.5 * bank[indices] + 0.5 * features.detach()
    bank[indices] = nn.functional.normalize(mixed, dim=1)
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer, bank=bank)
