"""The settings of an adversary are one dict under two names: the loop changes it by the one, the step reads it by the other."""

# group: unregistered state
# expect: bitwise

from _common import DDP, join_seeded, nn, start_trace, torch


class Adversary:
    def __init__(self, settings):
        self.settings = settings

    def perturb(self, inputs, gradient):
        return inputs + self.settings["radius"] * gradient.sign()


job = join_seeded()
net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
model = DDP(net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
job.register(model=model, optimizer=optimizer)
trace = start_trace(job)
attack_config = {"radius": 0.01, "growth": 1.4}
adversary = Adversary(attack_config)


@job.step
def train_step(inputs):
    targets = inputs.sum(1, keepdim=True)
    inputs = inputs.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(nn.functional.mse_loss(net(inputs), targets), inputs)
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(adversary.perturb(inputs.detach(), gradient)), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


for step in job.steps(12):
    loss = train_step(torch.randn(4, 8))
    attack_config["radius"] *= attack_config["growth"]
    trace.line(f"step {step}", loss=loss)

trace.final(model=model, optimizer=optimizer)
