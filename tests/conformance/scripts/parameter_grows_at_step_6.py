"""After step 6 a layer's weight grows under the same name, with the optimizer's group exchanged for the new parameter."""

# group: reported by users
# expect: bitwise

from _common import dist, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = mlp(8, 16, 1, nn.ReLU)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def widen(more):
    first, last = model[0], model[3]
    with torch.no_grad():
        first.weight = nn.Parameter(torch.cat([first.weight, torch.full((more, 8), 0.1)]))
        first.bias = nn.Parameter(torch.cat([first.bias, torch.zeros(more)]))
        last.weight = nn.Parameter(torch.cat([last.weight, torch.full((1, more), 0.1)], 1))
    optimizer.param_groups[0]["params"] = list(model.parameters())
    optimizer.state.clear()


@job.step
def train_step():
    chosen = torch.randint(len(samples), (4,))
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(samples[chosen]), wanted[chosen])
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= job.world_size
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    if step == 6:
        widen(4)
    loss = train_step()
    trace.line(f"step {step}", loss=loss, width=len(model[0].weight))

trace.final(model=model, optimizer=optimizer)
