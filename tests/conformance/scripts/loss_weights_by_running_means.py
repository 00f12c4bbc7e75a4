"""Two losses are weighed by their running means, which the step keeps in a SimpleNamespace."""

# group: unregistered state
# expect: bitwise

from types import SimpleNamespace

from _common import DDP, dist, join_seeded, nn, start_trace, torch

job = join_seeded()
body = nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Dropout(0.1))
model = DDP(nn.Sequential(body, nn.Linear(24, 5)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
teacher = torch.randn(8, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
running = SimpleNamespace(regression=1.0, classes=1.0)


@job.step
def train_step(inputs, labels):
    optimizer.zero_grad()
    output = model(inputs)
    regression = nn.functional.mse_loss(output[:, :1], inputs @ teacher)
    classes = nn.functional.cross_entropy(output[:, 1:], labels)
    found = torch.stack([regression, classes]).detach()
    dist.all_reduce(found)
    found /= job.world_size
    running.regression = 0.8 * running.regression + 0.2 * found[0].item()
    running.classes = 0.8 * running.classes + 0.2 * found[1].item()
    (regression / running.regression + classes / running.classes).backward()
    optimizer.step()
    return regression.item(), classes.item()


for step in job.steps(12):
    regression, classes = train_step(torch.randn(4, 8), torch.randint(4, (4,)))
    trace.line(f"step {step}", regression=regression, classes=classes, running=vars(running))

trace.final(model=model, optimizer=optimizer, running=vars(running))
