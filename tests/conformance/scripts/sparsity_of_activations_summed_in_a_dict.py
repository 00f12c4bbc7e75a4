"""Hooks add up each layer's mean activation in a dict of floats, which sets the next penalty's weight; the step empties it at its end."""

# group: state out of sight
# expect: told US4585 "trainer.activity"

from collections import defaultdict

from _common import DDP, join_seeded, nn, start_trace, torch


class Trainer:
    def __init__(self, job):
        self.job = job
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
        self.model = DDP(self.net)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.activity = defaultdict(float)
        for name, layer in self.net.named_children():
            if isinstance(layer, nn.ReLU):
                layer.register_forward_hook(lambda module, inputs, output, name=name: self.note(name, output))
        job.register(model=self.model, optimizer=self.optimizer)
        self.step = job.step(self._step)

    def note(self, name, output):
        self.activity[name] += output.detach().mean().item()

    def _step(self, inputs):
        self.optimizer.zero_grad()
        for part in inputs.chunk(2):
            output = self.model(part)
            loss = nn.functional.mse_loss(output, part.sum(1, keepdim=True)) / 2
            loss = loss + 0.1 * sum(self.activity.values()) * output.square().mean()
            loss.backward()
        self.optimizer.step()
        self.activity.clear()
        return loss.item()


def main():
    job = join_seeded()
    trainer = Trainer(job)
    trace = start_trace(job)
    for step in job.steps(12):
        loss = trainer.step(torch.randn(8, 8))
        trace.line(f"step {step}", loss=loss)
    trace.final(model=trainer.model, optimizer=trainer.optimizer)


if __name__ == "__main__":
    main()
