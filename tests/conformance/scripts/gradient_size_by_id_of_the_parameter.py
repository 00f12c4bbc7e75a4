"""A dict by id(parameter) has each parameter's running size of its gradient, by which the gradient is divided."""

# group: state out of sight
# expect: told US1423 "sizes"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
sizes = {}


def normalise_gradients(decay=0.8):
    for parameter in model.parameters():
        size = parameter.grad.norm().item()
        sizes[id(parameter)] = decay * sizes.get(id(parameter), size) + (1 - decay) * size
        parameter.grad.div_(sizes[id(parameter)] + 1e-6)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    normalise_gradients()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
