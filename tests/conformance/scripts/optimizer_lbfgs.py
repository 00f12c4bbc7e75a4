"""LBFGS evaluates the model and all-reduces its gradients several times inside optimizer.step."""

# group: optimizers
# expect: refused US4571

from _common import DDP, join_seeded, nn, torch
from _trace import Trace

job = join_seeded()
model = DDP(nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1)))
optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, history_size=5)
inputs, targets = torch.randn(60, 6), torch.randn(60, 1)
inputs, targets = inputs[job.rank :: 3], targets[job.rank :: 3]
job.register(model=model, optimizer=optimizer)
trace = Trace(job.rank)


@job.step
def train_step():
    def closure():
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        return loss

    return optimizer.step(closure).item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
