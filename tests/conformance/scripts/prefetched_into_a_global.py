"""As in nanoGPT: a memory-mapped file, get_batch by torch.randint, and the next batch fetched into globals inside the step."""

# group: data
# expect: bitwise

import tempfile
from pathlib import Path

import numpy
from _common import DDP, join_seeded, nn, torch
from _trace import Trace

job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 30)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
torch.manual_seed(1337 + job.rank)
trace = Trace(job.rank)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name, "train.bin")
numpy.random.default_rng(0).integers(0, 30, 2000).astype(numpy.uint16).tofile(path)


def get_batch():
    text = numpy.memmap(path, dtype=numpy.uint16, mode="r")
    places = torch.randint(len(text) - 9, (4,))
    x = torch.stack([torch.from_numpy(text[i : i + 8].astype(numpy.int64)) for i in places])
    y = torch.stack([torch.from_numpy(text[i + 1 : i + 9].astype(numpy.int64)) for i in places])
    return x, y


X, Y = get_batch()


@job.step
def train_step(step):
    global X, Y
    total = 0.0
    for micro_step in range(2):
        model.require_backward_grad_sync = micro_step == 1
        loss = nn.functional.cross_entropy(model(X).flatten(0, 1), Y.flatten()) / 2
        X, Y = get_batch()
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return total


for step in job.steps(12):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
