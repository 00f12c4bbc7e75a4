"""One of two values of a function changes for the first time in the seventh step, when nothing looks at everything."""

# ranks: 2
# group: unregistered state
# kills: forward@7:1 forward@9:0
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def train(steps):
    scale, running = 1.0, 0.0

    @job.step
    def train_step(inputs, targets):
        nonlocal scale, running
        if job.committed >= 6:
            scale = 0.9 * scale + 0.1 * torch.rand(()).item()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets) * scale
        loss.backward()
        running = 0.5 * running + loss.item()
        optimizer.step()
        return loss.item()

    for inputs, targets in job.batches(loader, steps=steps):
        loss = train_step(inputs, targets)
        trace.line(f"step {job.committed}", loss=loss, scale=scale, running=running)


train(16)
trace.final(model=model, optimizer=optimizer)
