"""RMSprop, centred and with momentum: three moments of each parameter."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(6, 16, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(16, 1)

    def forward(self, sequence):
        hidden, _ = self.gru(sequence)
        return self.out(hidden[:, -1])


job = join_seeded()
model = DDP(Reader())
optimizer = torch.optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.95, centered=True, momentum=0.8)
data = TensorDataset(torch.randn(96, 5, 6), torch.randn(96, 1))
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
