"""An evaluation restores the training mode of the head; the rest of the model always stays in eval mode."""

# group: state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
frozen = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5)).requires_grad_(False).eval()
head = nn.Sequential(nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 1))
model = DDP(nn.Sequential(frozen, head))
frozen.eval()
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
held_out = torch.randn(12, 8), torch.randn(12, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    was = head.training
    head.eval()
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(held_out[0][job.rank :: 3]), held_out[1][job.rank :: 3])
    dist.all_reduce(loss)
    head.train(was)
    return loss.item() / job.world_size


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed % 3 == 0:
        trace.line(f"evaluation {job.committed}", loss=evaluate())

trace.final(model=model, optimizer=optimizer)
