"""Weight normalization as a parametrization: direction and length of each weight are parameters of their own."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import TensorDataset

job = join_seeded()
convolution = weight_norm(nn.Conv1d(2, 6, 3))
model = DDP(nn.Sequential(convolution, nn.ReLU(), nn.Dropout(0.1), nn.Flatten(), weight_norm(nn.Linear(36, 2))))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
data = TensorDataset(torch.randn(96, 2, 8), torch.randn(96, 2))
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
