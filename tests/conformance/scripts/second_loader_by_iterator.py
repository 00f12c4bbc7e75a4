"""Semi-supervised: labelled batches from job.batches, unlabelled ones by next() of job.iterator, inside the step."""

# group: loops
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, sharded_loader, start_trace, torch
from torch.utils.data import TensorDataset

job = join_seeded()
model = DDP(mlp(8, 24, 4, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
data = TensorDataset(torch.randn(36, 8), torch.randint(4, (36,)))
others = torch.randn(60, 8)
loader = sharded_loader(data, 3)
unlabelled = job.iterator(sharded_loader(others, 5), repeat=True)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, labels = batch
    extra = next(unlabelled)
    with torch.no_grad():
        guessed = model.module(extra).softmax(1)
    optimizer.zero_grad()
    logits = model(torch.cat([inputs, extra + 0.1 * torch.randn_like(extra)]))
    known, guesses = logits[: len(inputs)], logits[len(inputs) :]
    loss = nn.functional.cross_entropy(known, labels) + 0.5 * nn.functional.cross_entropy(guesses, guessed)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
