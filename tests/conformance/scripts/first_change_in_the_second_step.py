"""A value of the script changes for the first time in the second step, differently on each rank; a section follows each step."""

# ranks: 2
# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def train(steps):
    scale = 1.0

    @job.step
    def train_step(inputs, targets):
        nonlocal scale
        if job.committed:
            scale = 0.9 * scale + 0.1 * torch.rand(()).item()
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets) * scale
        loss.backward()
        optimizer.step()
        return loss.item()

    @job.section
    def evaluate(inputs):
        with torch.no_grad():
            score = model(inputs).mean()
        dist.all_reduce(score)
        return score.item()

    for inputs, targets in job.batches(loader, steps=steps):
        loss = train_step(inputs, targets)
        score = evaluate(inputs)
        trace.line(f"step {job.committed}", loss=loss, scale=scale, score=score)


train(16)
trace.final(model=model, optimizer=optimizer)
