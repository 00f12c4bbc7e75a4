"""Gradients are accumulated over transactions; a plain global counts them and determines when the optimizer steps."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

PARTS = 3

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
micro = 0


@job.step
def train_step(batch):
    global micro
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    (loss / PARTS).backward()
    micro += 1
    if micro % PARTS == 0:
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=15):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, micro=micro)

trace.final(model=model, optimizer=optimizer, micro=micro)
