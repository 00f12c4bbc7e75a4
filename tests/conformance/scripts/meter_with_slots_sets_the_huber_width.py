"""A smoothing meter with __slots__ follows the size of the errors, and the Huber loss takes its width from it."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Smoothed:
    __slots__ = ("count", "decay", "value")

    def __init__(self, decay):
        self.decay, self.value, self.count = decay, 0.0, 0

    def update(self, value):
        self.value = self.decay * self.value + (1 - self.decay) * value
        self.count += 1

    @property
    def unbiased(self):
        return self.value / (1 - self.decay**self.count) if self.count else 1.0


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
errors = Smoothed(0.9)


@job.step
def train_step(inputs):
    targets = inputs.sum(1, keepdim=True)
    optimizer.zero_grad()
    output = model(inputs)
    error = (output.detach() - targets).abs().mean()
    dist.all_reduce(error)
    errors.update(error.item() / job.world_size)
    loss = nn.functional.huber_loss(output, targets, delta=errors.unbiased)
    loss.backward()
    optimizer.step()
    return loss.item(), errors.unbiased


for step in job.steps(12):
    loss, width = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, width=width)

trace.final(model=model, optimizer=optimizer, width=errors.unbiased)
