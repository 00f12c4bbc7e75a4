"""An object holds augmentations as a list of methods and lambdas; the first one goes to the end after each step."""

# group: state out of sight
# expect: told US1423 "augmenter.order[0]"

from _common import DDP, join_seeded, nn, start_trace, torch


class Augmenter:
    def __init__(self, width):
        self.weights = torch.linspace(0.5, 1.5, width)
        self.order = [self.weighted, lambda inputs: inputs.roll(1, 1), lambda inputs: inputs + 0.3 * torch.randn_like(inputs), torch.tanh]

    def weighted(self, inputs):
        return inputs * self.weights

    def __call__(self, inputs):
        for part in self.order:
            inputs = part(inputs)
        return inputs

    def rotate(self):
        self.order.append(self.order.pop(0))


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.GELU(), nn.Linear(24, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    augmenter = Augmenter(8)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(augmenter(inputs)), inputs.sum(1, keepdim=True))
        loss.backward()
        augmenter.rotate()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
