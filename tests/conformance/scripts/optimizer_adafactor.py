"""Adafactor: its moments are kept as rows and columns of matrices, whole for vectors."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

VOCABULARY, WIDTH, LENGTH = 32, 16, 8

job = join_seeded()
layer = nn.TransformerEncoderLayer(WIDTH, nhead=2, dim_feedforward=32, dropout=0.1, batch_first=True)
model = DDP(nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), layer, nn.Linear(WIDTH, VOCABULARY)))
optimizer = torch.optim.Adafactor(model.parameters(), lr=2e-2, weight_decay=0.01)
text = torch.randint(VOCABULARY, (600,))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def draw():
    starts = torch.randint(len(text) - LENGTH - 1, (4,)).tolist()
    return torch.stack([text[s : s + LENGTH] for s in starts]), torch.stack([text[s + 1 : s + LENGTH + 1] for s in starts])


@job.step
def train_step():
    inputs, targets = draw()
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
