"""A hook on the parameters of the first layer makes their gradients smaller from step 6 on, and in step 9 once more."""

# group: state out of sight
# expect: told US1423 "net.0.weight._backward_hooks[0]"

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
handles = []


def slow_down(layer, factor):
    for p in layer.parameters():
        handles.append(p.register_hook(lambda gradient: factor * gradient))


@job.step
def train_step(step, inputs):
    if step in (6, 9):
        slow_down(net[0], 0.3)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(step, torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, hooks=len(handles))

trace.final(model=model, optimizer=optimizer)
