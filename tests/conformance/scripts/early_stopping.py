"""Training ends when an evaluation has not got better twice: a break out of the loop, by a registered object that counts."""

# group: schedules
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


class EarlyStopping:
    def __init__(self, patience):
        self.patience, self.best, self.bad = patience, float("inf"), 0

    def stop(self, loss):
        self.bad = 0 if loss < 0.97 * self.best else self.bad + 1
        self.best = min(self.best, loss)
        return self.bad >= self.patience

    def state_dict(self):
        return {"best": self.best, "bad": self.bad}

    def load_state_dict(self, state):
        self.best, self.bad = state["best"], state["bad"]


job = join_seeded()
model = DDP(mlp(8, 32, 1, nn.GELU))
held_out = torch.randn(30, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
stopping = EarlyStopping(patience=2)
job.register(model=model, optimizer=optimizer, stopping=stopping)
trace = start_trace(job)


@job.step
def train_step(step):
    inputs = torch.randn(4, 8)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    optimizer.step()
    return loss.item()


@job.section
def evaluate():
    model.eval()
    inputs = held_out[job.rank :: job.world_size]
    with torch.no_grad():
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    model.train()
    dist.all_reduce(loss)
    return loss.item() / job.world_size


for step in job.steps(60):
    loss = train_step(step)
    trace.line(f"step {step}", loss=loss)
    if job.committed % 3 == 0:
        found = evaluate()
        trace.line(f"evaluation {job.committed}", loss=found)
        if stopping.stop(found):
            break

trace.final(model=model, optimizer=optimizer, stopping=stopping)
