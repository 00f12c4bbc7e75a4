"""The list of augmentations, functions of the script, grows by one every third step."""

# group: state out of sight
# expect: told US1423 "augmentations[1]"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def jitter(inputs):
    return inputs + 0.2 * torch.randn_like(inputs)


def flip(inputs):
    return inputs.flip(1)


def mask(inputs):
    return inputs * (torch.rand_like(inputs) > 0.2)


def stretch(inputs):
    return inputs * (0.5 + torch.rand(len(inputs), 1))


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
augmentations = [jitter]


@job.step
def train_step(step, inputs):
    if step in (4, 7, 10):
        augmentations.append([flip, mask, stretch][step // 3 - 1])
    views = inputs
    for augment in augmentations:
        views = augment(views)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(views), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(step, torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, augmentations=[augment.__name__ for augment in augmentations])

trace.final(model=model, optimizer=optimizer)
