"""Progressive growing: after step 6 the network gets one more layer, and the optimizer its parameters."""

# group: state
# expect: told US1501

from _common import dist, join_seeded, nn, start_trace, torch

job = join_seeded()
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1))
head = nn.Linear(16, 1)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-2)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, head=head, optimizer=optimizer)
trace = start_trace(job)


def grow():
    layer = nn.Linear(16, 16)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    model.append(layer)
    model.append(nn.ReLU())
    optimizer.add_param_group({"params": list(layer.parameters()), "lr": 3e-2})


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(head(model(samples[chosen])), wanted[chosen])
    loss.backward()
    for parameter in [*model.parameters(), *head.parameters()]:
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world_size
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    if step == 6:
        grow()
    loss = train_step()
    trace.line(f"step {step}", loss=loss, parts=len(model))

trace.final(model=model, head=head, optimizer=optimizer)
