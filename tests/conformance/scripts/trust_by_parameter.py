"""A dict that has the parameters themselves as keys holds a trust in each, which falls where its gradient turns around."""

# group: state out of sight
# expect: told US1423 "trust.before"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Trust:
    def __init__(self, parameters):
        self.trust = dict.fromkeys(parameters, 1.0)
        self.before = {}

    def apply(self):
        for parameter in self.trust:
            gradient = parameter.grad
            if parameter in self.before:
                agrees = (gradient * self.before[parameter]).sum().item() > 0
                self.trust[parameter] *= 1.1 if agrees else 0.7
            self.before[parameter] = gradient.clone()
            gradient.mul_(self.trust[parameter])


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    trust = Trust(model.parameters())

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        trust.apply()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, trust=sum(trust.trust.values()))

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
