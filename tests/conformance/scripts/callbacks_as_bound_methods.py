"""Only a list of bound methods refers to the two callbacks: one softens the targets, the other scales the gradients."""

# group: state out of sight
# expect: told US1423 "after_backward[0].__self__.norms"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Softening:
    def __init__(self):
        self.amount = 0.3

    def before(self, inputs, targets):
        targets.mul_(1 - self.amount)
        self.amount *= 0.9


class GradientScale:
    def __init__(self):
        self.norms = []

    def after(self, parameters):
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()
        self.norms.append(norm.item())
        typical = sorted(self.norms[-5:])[len(self.norms[-5:]) // 2]
        for p in parameters:
            p.grad.mul_(min(1.0, typical / norm.item()))


def build_callbacks():
    return [Softening().before], [GradientScale().after]


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
before_forward, after_backward = build_callbacks()


@job.step
def train_step(inputs):
    targets = inputs.sum(1, keepdim=True)
    for callback in before_forward:
        callback(inputs, targets)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    for callback in after_backward:
        callback(list(model.parameters()))
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
