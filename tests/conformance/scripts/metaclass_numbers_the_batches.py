"""Each batch is wrapped in an object whose metaclass numbers it; every third is trained with double noise."""

# group: state out of sight
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Numbered(type):
    made = 0

    def __call__(cls, *args, **kwargs):
        thing = super().__call__(*args, **kwargs)
        thing.number = Numbered.made
        Numbered.made += 1
        return thing


class Batch(metaclass=Numbered):
    def __init__(self, inputs):
        self.inputs = inputs
        self.targets = inputs.sum(1, keepdim=True)

    def noisy(self):
        strength = 0.4 if self.number % 3 == 0 else 0.2
        return self.inputs + strength * torch.randn_like(self.inputs)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    batch = Batch(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(batch.noisy()), batch.targets)
    loss.backward()
    optimizer.step()
    return loss.item(), batch.number


for step in job.steps(14):
    loss, number = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, number=number)

trace.final(model=model, optimizer=optimizer)
