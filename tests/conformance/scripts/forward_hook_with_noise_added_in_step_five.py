"""From step 5 on a forward hook puts noise onto a layer's output."""

# group: state out of sight
# expect: told US1423 "add_noise"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1))
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(192, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def add_noise(module, inputs, output):
    return output + 0.3 * torch.randn_like(output)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    if job.committed == 5:
        net[2].register_forward_hook(add_noise)
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
