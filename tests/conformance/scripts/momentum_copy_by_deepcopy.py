"""A teacher is a deepcopy of the model that follows it by a momentum after the optimizer, and is not registered."""

# group: unregistered state
# expect: bitwise

import copy

from _common import DDP, join_seeded, mlp, nn, start_trace, torch

job = join_seeded()
net = mlp(8, 24, 4, nn.GELU)
teacher = copy.deepcopy(net).requires_grad_(False)
model = DDP(net)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    wanted = teacher(inputs + 0.1 * torch.randn_like(inputs)).softmax(1)
    loss = nn.functional.cross_entropy(model(inputs), wanted) + nn.functional.mse_loss(model(inputs)[:, 0], inputs.sum(1))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for slow, fast in zip(teacher.parameters(), net.parameters(), strict=True):
            slow.mul_(0.8).add_(fast, alpha=0.2)
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer, slow=list(teacher.parameters()))
