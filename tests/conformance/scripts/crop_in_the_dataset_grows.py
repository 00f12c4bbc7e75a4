"""Progressive lengths: every fourth iteration the loop lets the dataset give longer crops."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, sharded_loader, start_trace, torch
from torch.utils.data import Dataset


class Windows(Dataset):
    def __init__(self, text, width):
        self.text = text
        self.width = width

    def __len__(self):
        return len(self.text) - 12

    def __getitem__(self, index):
        return self.text[index : index + self.width + 1]


job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 24), nn.GELU(), nn.Dropout(0.1), nn.Linear(24, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
windows = Windows(torch.randint(20, (300,)), width=3)
loader = sharded_loader(windows, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(tokens):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


for tokens in job.batches(loader, steps=12):
    loss = train_step(tokens)
    trace.line(f"step {job.committed}", loss=loss, tokens=tokens)
    if job.committed % 4 == 0:
        windows.width += 3

trace.final(model=model, optimizer=optimizer)
