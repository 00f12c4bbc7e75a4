"""A custom optimizer: signs of a momentum, with a Python counter in its state."""

# group: optimizers
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


class SignMomentum(torch.optim.Optimizer):
    def __init__(self, parameters, lr, beta=0.9, every=4):
        super().__init__(parameters, {"lr": lr, "beta": beta, "every": every})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["count"] = 0
                    state["momentum"] = torch.zeros_like(parameter)
                state["count"] += 1
                state["momentum"].lerp_(parameter.grad, 1 - group["beta"])
                step = state["momentum"].sign() if state["count"] % group["every"] else state["momentum"]
                parameter.add_(step, alpha=-group["lr"])


job = join_seeded()
model = DDP(mlp(8, 24, 1, nn.Tanh))
optimizer = SignMomentum(model.parameters(), lr=3e-3)
data = random_dataset(96, 8, 1)
loader = sharded_loader(data, 4)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)


@job.step
def train_step(batch):
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for batch in job.batches(loader, steps=12):
    loss = train_step(batch)
    trace.line(f"step {job.committed}", loss=loss)

trace.final(model=model, optimizer=optimizer)
