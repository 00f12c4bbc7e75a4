"""Classes that are often mistaken weigh more: a numpy matrix, bound to a new array in each step, forgets and counts."""

# group: unregistered state
# expect: bitwise

import numpy
from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

CLASSES = 4

job = join_seeded()
model = DDP(mlp(8, 24, CLASSES, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
confusion = numpy.ones((CLASSES, CLASSES))


@job.step
def train_step(inputs, labels):
    global confusion
    recall = confusion.diagonal() / confusion.sum(1)
    weights = torch.tensor(1.5 - recall, dtype=torch.float32)
    optimizer.zero_grad()
    logits = model(inputs)
    loss = nn.functional.cross_entropy(logits, labels, weight=weights)
    loss.backward()
    counts = torch.zeros(CLASSES, CLASSES)
    counts.index_put_((labels, logits.argmax(1)), torch.ones(len(labels)), accumulate=True)
    dist.all_reduce(counts)
    confusion = 0.9 * confusion + counts.numpy()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(6, 8), torch.randint(CLASSES, (6,)))
    trace.line(f"step {step}", loss=loss, confusion=confusion)

trace.final(model=model, optimizer=optimizer, confusion=confusion)
