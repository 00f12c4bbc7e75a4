"""The level of noise is a contextvars.ContextVar, which the layer reads and the step sets to the next level."""

# group: state out of sight
# expect: told US1423 "noise_level.value"

import contextvars

from _common import DDP, join_seeded, nn, start_trace, torch

noise_level = contextvars.ContextVar("noise_level", default=0.5)


class Noise(nn.Module):
    def forward(self, inputs):
        return inputs + noise_level.get() * torch.randn_like(inputs)


job = join_seeded()
model = DDP(nn.Sequential(Noise(), nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    noise_level.set(0.85 * noise_level.get())
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, level=noise_level.get())

trace.final(model=model, optimizer=optimizer)
