"""A queue of negatives is a global; each step binds it to a new tensor of all ranks' keys and the old ones."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
negatives = nn.functional.normalize(torch.randn(20, 6), dim=1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def views(inputs):
    both = torch.cat([inputs, inputs]) + 0.2 * torch.randn(2 * len(inputs), 8)
    return nn.functional.normalize(model(both), dim=1).chunk(2)


@job.step
def train_step(inputs):
    global negatives
    optimizer.zero_grad()
    queries, keys = views(inputs)
    keys = keys.detach()
    logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ negatives.T], 1) / 0.2
    loss = nn.functional.cross_entropy(logits, torch.zeros(len(inputs), dtype=torch.long))
    loss.backward()
    everyones = [torch.empty_like(keys) for _ in range(job.world_size)]
    dist.all_gather(everyones, keys)
    negatives = torch.cat([*everyones, negatives])[:20]
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(3, 8))
    trace.line(f"step {step}", loss=loss, negatives=negatives)

trace.final(model=model, optimizer=optimizer, negatives=negatives)
