"""Batches are dicts with strings, nested lists and tensors, made by a custom collate function."""

# group: data
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


def collate(items):
    longest = max(len(item["text"]) for item in items)
    text = torch.tensor([item["text"] + [0] * (longest - len(item["text"])) for item in items])
    return {"input_ids": text, "mask": text != 0, "names": [item["name"] for item in items], "sizes": {"longest": longest}}


job = join_seeded()
model = DDP(nn.Sequential(nn.Embedding(20, 16), nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 20)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = [{"name": f"item {n}", "text": torch.randint(1, 20, (3 + n % 5,)).tolist()} for n in range(60)]
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data), collate_fn=collate)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    text, mask = batch["input_ids"], batch["mask"]
    losses = nn.functional.cross_entropy(model(text[:, :-1]).transpose(1, 2), text[:, 1:], reduction="none")
    loss = (losses * mask[:, 1:]).sum() / mask[:, 1:].sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss.item(), "first": batch["names"][0], "longest": batch["sizes"]["longest"]}


for batch in job.batches(loader, steps=12):
    found = train_step(batch)
    trace.line(f"step {job.committed}", **found)

trace.final(model=model, optimizer=optimizer)
