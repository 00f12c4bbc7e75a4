"""A trainer's phase is an object; once its loss is low, or after some steps, it hands over to an instance of another class."""

# group: state out of sight
# expect: told US1423 "phase"

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class WarmUp:
    def __init__(self):
        self.left = 4

    def loss(self, output, targets):
        return nn.functional.l1_loss(output, targets)

    def follow(self, mean):
        self.left -= 1
        return self if self.left else Robust(width=mean)


class Robust:
    def __init__(self, width):
        self.width = width

    def loss(self, output, targets):
        return nn.functional.huber_loss(output, targets, delta=self.width)

    def follow(self, mean):
        self.width = 0.8 * self.width + 0.2 * mean
        return self if self.width > 0.8 else Fine()


class Fine:
    def loss(self, output, targets):
        return nn.functional.mse_loss(output, targets)

    def follow(self, mean):
        return self


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
phase = WarmUp()


@job.step
def train_step(inputs):
    global phase
    optimizer.zero_grad()
    loss = phase.loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    phase = phase.follow(mean.item() / job.world_size)
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, phase=type(phase).__name__)

trace.final(model=model, optimizer=optimizer)
