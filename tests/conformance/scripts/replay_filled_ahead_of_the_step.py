"""A replay buffer is a plain list; before the step, the loop fills it with results of each rank's environment."""

# group: unregistered state
# expect: told US4586 "experience"

import random

from _common import DDP, join_seeded, nn, start_trace, torch

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
experience = []


@job.step
def train_step():
    chosen = random.choices(experience, k=6)
    states, rewards = torch.stack([state for state, _ in chosen]), torch.tensor([[reward] for _, reward in chosen])
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(states), rewards)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    state = torch.randn(4)
    experience.append((state, state.square().sum().item()))
    loss = train_step()
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
