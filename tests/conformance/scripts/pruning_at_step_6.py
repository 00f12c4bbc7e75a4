"""Magnitude pruning after step 6: the weight becomes a parameter of another name and a mask that is a new buffer."""

# group: state
# expect: told US1501

from _common import dist, join_seeded, nn, start_trace, torch
from torch.nn.utils import prune

job = join_seeded()
model = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
samples, wanted = torch.randn(96, 8), torch.randn(96, 1)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


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
        for layer in (model[0], model[3]):
            prune.l1_unstructured(layer, "weight", amount=0.4)
    loss = train_step()
    trace.line(f"step {step}", loss=loss, zeros=int((model[0].weight == 0).sum()))

trace.final(model=model, optimizer=optimizer)
