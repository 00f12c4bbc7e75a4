"""Lookahead around Adam: slow weights in an object with a state_dict, copied over every fifth step."""

# group: state
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class Lookahead:
    def __init__(self, optimizer, every=5, alpha=0.5):
        self.optimizer = optimizer
        self.every, self.alpha = every, alpha
        self.count = 0
        self.parameters = [p for group in optimizer.param_groups for p in group["params"]]
        self.slow = [p.detach().clone() for p in self.parameters]

    @torch.no_grad()
    def step(self):
        self.optimizer.step()
        self.count += 1
        if self.count % self.every == 0:
            for slow, fast in zip(self.slow, self.parameters, strict=True):
                slow.lerp_(fast, self.alpha)
                fast.copy_(slow)

    def state_dict(self):
        return {"count": self.count, "slow": list(self.slow)}

    def load_state_dict(self, state):
        self.count = state["count"]
        for mine, given in zip(self.slow, state["slow"], strict=True):
            mine.copy_(given)


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
adam = torch.optim.Adam(model.parameters(), lr=1e-2)
optimizer = Lookahead(adam)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, adam=adam, lookahead=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    adam.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, adam=adam, lookahead=optimizer)
