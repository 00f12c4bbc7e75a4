"""A bandit chooses one of three augmentations by the mean losses of each, in a defaultdict of lists."""

# group: unregistered state
# expect: bitwise

from collections import defaultdict

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch

AUGMENTATIONS = {
    "noise": lambda inputs: inputs + 0.5 * torch.randn_like(inputs),
    "flip": lambda inputs: inputs.flip(1),
    "drop": lambda inputs: nn.functional.dropout(inputs, 0.3),
}

job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
rewards = defaultdict(list)


def choose():
    pulls = sum(len(values) for values in rewards.values())
    for name in AUGMENTATIONS:
        if name not in rewards:
            return name
    return max(rewards, key=lambda name: sum(rewards[name]) / len(rewards[name]) + (pulls / len(rewards[name])) ** 0.5)


@job.step
def train_step(inputs):
    name = choose()
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(AUGMENTATIONS[name](inputs)), inputs.sum(1, keepdim=True))
    loss.backward()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    rewards[name].append(mean.item() / job.world_size)
    optimizer.step()
    return loss.item(), name


for step in job.steps(12):
    loss, name = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, name=name)

trace.final(model=model, optimizer=optimizer, rewards=dict(rewards))
