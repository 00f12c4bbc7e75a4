"""Adagrad has state from its constructor on, before any step, and a learning rate that decays with its own step counter."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

job = join_seeded()
words = torch.randint(50, (120, 6))
labels = torch.randint(4, (120,))
bag = nn.EmbeddingBag(50, 24, mode="mean")
model = DDP(nn.Sequential(bag, nn.Dropout(0.2), nn.Linear(24, 4)))
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, lr_decay=0.01, initial_accumulator_value=0.1)
data = TensorDataset(words, labels)
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data, shuffle=True, seed=3))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, wanted = batch
    optimizer.zero_grad()
    output = model(inputs)
    loss = nn.functional.cross_entropy(output, wanted)
    loss.backward()
    optimizer.step()
    return loss.item(), (output.argmax(1) == wanted).float().mean().item()


for batch in job.batches(loader, steps=12):
    loss, accuracy = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, accuracy=accuracy)

trace.final(model=model, optimizer=optimizer)
