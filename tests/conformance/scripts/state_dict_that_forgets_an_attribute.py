"""A registered schedule for the clipping saves its history in state_dict, and forgets the limit that it has derived from it."""

# group: state out of sight
# expect: told US1423 "clipping.limit"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Clipping:
    def __init__(self, limit=5.0):
        self.limit = limit
        self.history = []

    def clip(self, parameters):
        norm = nn.utils.clip_grad_norm_(parameters, self.limit).item()
        self.history = [*self.history[-3:], norm]
        self.limit = 0.7 * self.limit + 0.3 * sum(self.history) / len(self.history)

    def state_dict(self):
        return {"history": self.history}

    def load_state_dict(self, state):
        self.history = list(state["history"])


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.ReLU))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
clipping = Clipping()
job.register(model=model, optimizer=optimizer, clipping=clipping)
trace = start_trace(job)


@job.step
def train_step(inputs):
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    loss.backward()
    clipping.clip(model.parameters())
    optimizer.step()
    return loss.item()


for step in job.steps(14):
    loss = train_step(torch.randn(4, 8))
    trace.line(f"step {step}", loss=loss, limit=clipping.limit)

trace.final(model=model, optimizer=optimizer, clipping=clipping)
