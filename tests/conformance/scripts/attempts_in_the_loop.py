"""The step and an evaluation are blocks of the loop (`job.attempts()`), with running values that the blocks change in place and bind."""

# ranks: 2
# group: api
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
loader = sharded_loader(random_dataset(96, 8, 1), 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


def backward(inputs, targets, scale):
    loss = nn.functional.mse_loss(model(inputs), targets) * scale
    loss.backward()
    return loss


def train(steps):
    running, history, scale = 0.0, [], 1.0
    for inputs, targets in job.batches(loader, steps=steps):
        noise = 0.1 * job.committed
        for attempt in job.attempts():
            with attempt:
                noise = noise + torch.rand(()).item()
                scale = 0.9 * scale + 0.1 / (1.0 + running)
                optimizer.zero_grad()
                loss = backward(inputs + 0.01 * noise, targets, scale)
                history.append(loss.item())
                running = 0.5 * running + history[-1] + 0.01 * len(history)
                optimizer.step()
        trace.line(f"step {job.committed}", loss=loss, noise=noise, running=running)
        for attempt in job.attempts("section"):
            with attempt, torch.no_grad():
                score = model(inputs).mean()
                dist.all_reduce(score)
                running += 0.001 * score.item()
        trace.line(f"score {job.committed}", score=score, running=running)
    return running, len(history)


running, seen = train(16)
trace.line("end", running=running, seen=seen)
trace.final(model=model, optimizer=optimizer)
