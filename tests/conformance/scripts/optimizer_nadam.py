"""NAdam with decoupled weight decay: a product of momenta is part of its state."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(14, 28), nn.Mish(), nn.AlphaDropout(0.1), nn.Linear(28, 5)))
optimizer = torch.optim.NAdam(model.parameters(), lr=4e-3, weight_decay=0.02, decoupled_weight_decay=True, momentum_decay=4e-3)
data = TensorDataset(torch.randn(99, 14), torch.randint(5, (99,)))
loader = sharded_loader(data, 5)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs, labels):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    return loss.item()


for inputs, labels in job.batches(loader, steps=12):
    loss = train_step(inputs, labels)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
