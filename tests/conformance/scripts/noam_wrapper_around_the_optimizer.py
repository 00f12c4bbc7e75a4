"""A custom wrapper counts steps and sets the rate before each optimizer.step; only the optimizer inside is registered."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


class NoamOptimizer:
    def __init__(self, optimizer, width, factor, warm_up):
        self.optimizer, self.width, self.factor, self.warm_up = optimizer, width, factor, warm_up
        self._step = 0
        self._rate = 0.0

    def rate(self):
        return self.factor * self.width**-0.5 * min(self._step**-0.5, self._step * self.warm_up**-1.5)

    def step(self):
        self._step += 1
        self._rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()


job = join_seeded()
layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
model = DDP(nn.Sequential(nn.Embedding(20, 16), layer, nn.Linear(16, 20)))
optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
noam = NoamOptimizer(optimizer, width=16, factor=0.2, warm_up=6)


@job.step
def train_step(tokens):
    noam.zero_grad()
    loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flip(1).flatten())
    loss.backward()
    noam.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randint(20, (4, 5)))
    trace.line(f"step {step}", loss=loss, rate=noam._rate)

trace.final(model=model, optimizer=optimizer, count=noam._step)
