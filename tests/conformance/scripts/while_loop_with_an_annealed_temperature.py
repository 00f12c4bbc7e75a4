"""A hand-written while loop; the step counts its calls and anneals the temperature of a contrastive loss in a dict of settings."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 6)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
annealed = {"step": 0, "temperature": 1.0}


@job.step
def train_step():
    annealed["temperature"] = max(0.1, 0.85 * annealed["temperature"])
    inputs = torch.randn(5, 8)
    both = torch.cat([inputs, inputs]) + 0.2 * torch.randn(10, 8)
    optimizer.zero_grad()
    features = nn.functional.normalize(model(both), dim=1)
    alike = features @ features.T / annealed["temperature"]
    alike = alike.masked_fill(torch.eye(10, dtype=torch.bool), float("-inf"))
    loss = nn.functional.cross_entropy(alike, torch.arange(10).roll(5))
    loss.backward()
    optimizer.step()
    annealed["step"] += 1
    return loss.item(), annealed["step"]


while annealed["step"] < 12:
    loss, number = train_step()
    trace.line(f"step {number}", loss=loss)

trace.final(model=model, optimizer=optimizer, annealed=annealed)
