"""The head is trained alone at first; the trunk joins the optimizer as another parameter group after step 5."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
trunk = nn.Sequential(nn.Linear(8, 20), nn.ReLU(), nn.Dropout(0.1))
head = nn.Linear(20, 1)
model = DDP(nn.Sequential(trunk, head))
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    model.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)
    if job.committed == 5:
        optimizer.add_param_group({"params": list(trunk.parameters()), "lr": 1e-3})

trace.final(model=model, optimizer=optimizer)
