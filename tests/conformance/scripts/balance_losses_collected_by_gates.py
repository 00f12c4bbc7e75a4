"""Each gate puts its balancing loss into a list of the script; the step adds them up and empties the list at its end."""

# group: state out of sight
# expect: told US4585 "balance_losses"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

balance_losses = []


class Gated(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, inputs):
        shares = self.gate(inputs).softmax(1)
        balance_losses.append(len(self.experts) * shares.mean(0).square().sum())
        return inputs + sum(share[:, None] * expert(inputs).relu() for share, expert in zip(shares.T, self.experts, strict=True))


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 16), Gated(16, 3), nn.Dropout(0.1), Gated(16, 3), nn.Linear(16, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(192, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets) + 0.1 * sum(balance_losses)
    loss.backward()
    optimizer.step()
    count = len(balance_losses)
    balance_losses.clear()
    return loss.item(), count


for batch in job.batches(loader, steps=12):
    loss, count = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, count=count)

trace.final(model=model, optimizer=optimizer)
