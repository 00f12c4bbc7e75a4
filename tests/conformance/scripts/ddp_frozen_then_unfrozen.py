"""The trunk is frozen for five steps and unfrozen before the sixth; DDP has known all parameters from the start."""

# group: ddp
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
trunk = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1))
model = DDP(nn.Sequential(trunk, nn.Linear(24, 1)), find_unused_parameters=True)
trunk.requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    if step == 5:
        trunk.requires_grad_(True)
    loss = train_step()
    trace.line(f"step {step}", loss=loss, trained=[p.requires_grad for p in model.parameters()])

trace.final(model=model, optimizer=optimizer)
