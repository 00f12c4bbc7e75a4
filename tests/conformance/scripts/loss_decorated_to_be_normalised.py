"""The loss function is decorated: the wrapper keeps its usual size in a nonlocal name and divides by it."""

# group: state out of sight
# expect: told US1423 "regression_loss.usual"

import functools

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def normalised(decay):
    def decorate(function):
        usual = None

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            nonlocal usual
            loss = function(*args, **kwargs)
            usual = loss.item() if usual is None else decay * usual + (1 - decay) * loss.item()
            return loss / usual

        return wrapper

    return decorate


@normalised(0.8)
def regression_loss(outputs, targets):
    return nn.functional.mse_loss(outputs, targets)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = regression_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
