"""job.batches over an object whose __iter__ is an infinite generator that draws from the global streams."""

# group: data
# expect: told US1331

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Endless:
    def __init__(self, teacher):
        self.teacher = teacher

    def __iter__(self):
        shift = torch.zeros(8)
        while True:
            shift = 0.9 * shift + 0.1 * torch.randn(8)  # what the generator knows grows with each batch
            inputs = torch.randn(4, 8) + shift
            yield inputs, inputs @ self.teacher


job = join_seeded()
model = DDP(mlp(8, 16, 1, nn.GELU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = Endless(torch.randn(8, 1))
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss, batch=batch)

trace.final(model=model, optimizer=optimizer)
