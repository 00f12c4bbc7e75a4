"""Muon for the matrices, AdamW for everything else, both stepped in one step."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(12, 24), nn.RMSNorm(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 12)))
matrices = [p for p in model.parameters() if p.ndim == 2]
vectors = [p for p in model.parameters() if p.ndim != 2]
muon = torch.optim.Muon(matrices, lr=1e-2, momentum=0.95, weight_decay=0.1)
adamw = torch.optim.AdamW(vectors, lr=3e-3)
data = random_dataset(96, 12, 12)
loader = sharded_loader(data, 4)
job.register(model=model, optimizers=[muon, adamw])
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for optimizer in (muon, adamw):
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, muon=muon, adamw=adamw)
