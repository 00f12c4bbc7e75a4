"""A subclass of deque keeps the sum of what is in it as an attribute of its own; gradients are clipped by its mean."""

# group: state out of sight
# expect: told US1423 "norms"

from collections import deque

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Window(deque):
    def __init__(self, size):
        super().__init__(maxlen=size)
        self.total = 0.0

    def append(self, value):
        if len(self) == self.maxlen:
            self.total -= self[0]
        super().append(value)
        self.total += value

    @property
    def mean(self):
        return self.total / len(self) if self else 1.0


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    norms = Window(5)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), norms.mean)
        norms.append(norm.item())
        optimizer.step()
        return loss.item(), norms.mean

    for step in job.steps(14):
        loss, mean = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, mean=mean)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
