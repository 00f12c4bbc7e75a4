"""A section gets a registered tensor as an argument, which the step changes in place and the section only reads."""

# kills: evaluation@3:1 backward@5:0 evaluation@6:2 section vote@9:1
# expect: bitwise

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = sharded_loader(random_dataset(36, 8, 1), 4)
queue = torch.zeros(12, 6)
job.register(model=model, optimizer=optimizer, queue=queue)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    features = nn.functional.normalize(model(inputs), dim=1)
    weights = (features.detach() @ queue.T).exp().mean(1)
    loss = features.pow(3).sum() + (features.sum(1) * weights).sum()
    queue[4:] = queue[:-4].clone()
    queue[:4] = features.detach()
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def save(epoch, kept):
    trace.line(f"evaluation {epoch}", kept=kept)


for epoch in range(4):
    loader.sampler.set_epoch(epoch)
    for inputs, _ in job.batches(loader):
        loss = train_step(inputs)
        trace.line(f"step {job.committed}", loss=loss)
    save(epoch, queue)

trace.final(model=model, optimizer=optimizer, queue=queue)
