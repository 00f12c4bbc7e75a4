"""Two parameter groups, with and without weight decay; the loop sets their learning rate in each step."""

# group: optimizers
# expect: bitwise

import math

from _common import DDP, join_seeded, nn, start_trace, torch

WARM_UP, STEPS, HIGHEST, LOWEST = 3, 12, 1e-2, 1e-3


def learning_rate(step):
    if step < WARM_UP:
        return HIGHEST * (step + 1) / (WARM_UP + 1)
    share = (step - WARM_UP) / (STEPS - WARM_UP)
    return LOWEST + 0.5 * (1 + math.cos(math.pi * share)) * (HIGHEST - LOWEST)


job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(8, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 8)))
decay = [p for p in model.parameters() if p.dim() >= 2]
no_decay = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=HIGHEST)
samples = torch.randn(300, 8)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(step):
    lr = learning_rate(step)
    for group in optimizer.param_groups:
        group["lr"] = lr
    inputs = samples[torch.randint(len(samples), (6,))]
    loss = nn.functional.mse_loss(model(inputs), inputs)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


for step in job.steps(STEPS):
    loss = train_step(step)
    trace.line(f"step {job.committed}", loss=loss, lr=optimizer.param_groups[0]["lr"])

trace.final(model=model, optimizer=optimizer)
