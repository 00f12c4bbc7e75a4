"""Contrastive learning against the features of the last batches, which an object keeps in a list, more than 1 MiB together."""

# group: state out of sight
# expect: told US1422 "bank.features"

from _common import DDP, join_seeded, nn, start_trace, torch


class Bank:
    def __init__(self, batches):
        self.batches = batches
        self.features = []

    def add(self, features):
        self.features.append(features.detach())
        if len(self.features) > self.batches:
            self.features.pop(0)

    def logits(self, queries, keys):
        right = (queries * keys).sum(1, keepdim=True)
        return torch.cat([right, *(queries @ old.T for old in self.features)], 1) / 0.2


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 256)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
bank = Bank(6)


@job.step
def train_step(samples):
    one, other = (samples + 0.3 * torch.randn_like(samples) for _ in range(2))
    queries, keys = nn.functional.normalize(model(torch.cat([one, other])), dim=1).chunk(2)
    logits = bank.logits(queries, keys)
    loss = nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long))
    optimizer.zero_grad()
    loss.backward()
    bank.add(keys)
    optimizer.step()
    return loss.item(), logits.shape[1]


for step in job.steps(14):
    loss, width = train_step(torch.randn(256, 16))
    trace.line(f"step {step}", loss=loss, width=width)

trace.final(model=model, optimizer=optimizer)
