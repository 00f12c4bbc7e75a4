"""A corpus is an open text file, and each step reads the next lines of it."""

# group: state out of sight
# expect: told US1423 "corpus"

import tempfile

from _common import DDP, join_seeded, nn, start_trace, torch

LETTERS = "abcdefgh"

job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(len(LETTERS), 12), nn.Flatten(), nn.Linear(60, len(LETTERS))))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
numbers = torch.randint(len(LETTERS), (300, 6)).tolist()
corpus = tempfile.TemporaryFile("w+")  # noqa: SIM115
for line in numbers[job.rank :: job.world_size]:
    corpus.write("".join(LETTERS[n] for n in line) + "\n")
corpus.seek(0)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    lines = [corpus.readline().strip() for _ in range(5)]
    batch = torch.tensor([[LETTERS.index(letter) for letter in line] for line in lines])
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch[:, :5]), batch[:, 5])
    loss.backward()
    optimizer.step()
    return loss.item(), lines[0]


for step in job.steps(14):
    loss, first = train_step()
    trace.line(f"step {step}", loss=loss, first=first)

trace.final(model=model, optimizer=optimizer)
