"""Meta-learning: a differentiable SGD that lives inside each step adapts copies of the weights; only Adam is registered."""

# group: optimizers
# expect: refused US4575

from _common import DDP, join_seeded, nn, start_trace, torch
from torch.func import functional_call


class Learner(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, support, query):
        copies = {name: p.clone() for name, p in self.net.named_parameters()}
        inner = torch.optim.SGD(list(copies.values()), lr=0.1, differentiable=True)
        x, y = support
        used = {name: copy.clone() for name, copy in copies.items()}  # the step below changes the others in place
        loss = nn.functional.mse_loss(functional_call(self.net, used, (x,)), y)
        gradients = torch.autograd.grad(loss, list(copies.values()), create_graph=True)
        for copy, gradient in zip(copies.values(), gradients, strict=True):
            copy.grad = gradient
        inner.step()
        x, y = query
        return nn.functional.mse_loss(functional_call(self.net, copies, (x,)), y)


job = join_seeded()
model = DDP(Learner())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step():
    slope = torch.randn(2, 1)
    x = torch.randn(12, 2)
    y = torch.sin(x @ slope)
    optimizer.zero_grad()
    loss = model((x[:6], y[:6]), (x[6:], y[6:]))
    loss.backward()
    optimizer.step()
    return loss.item()


for _ in job.steps(12):
    loss = train_step()
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
