"""The difficulty of a curriculum is an attribute of a class that is never instantiated."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class Curriculum:
    difficulty = 1
    threshold = 1.2

    @classmethod
    def advance(cls, loss):
        if loss < cls.threshold and cls.difficulty < 8:
            cls.difficulty += 1
            cls.threshold *= 0.97

    @classmethod
    def mask(cls, inputs):
        return inputs * (torch.arange(inputs.shape[1]) < cls.difficulty)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    inputs = Curriculum.mask(inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    optimizer.step()
    return mean.item() / job.world_size


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    Curriculum.advance(loss)
    trace.line(f"step {step}", loss=loss, difficulty=Curriculum.difficulty)

trace.final(model=model, optimizer=optimizer, difficulty=Curriculum.difficulty)
