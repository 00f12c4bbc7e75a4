"""A singleton that the step looks up each time holds the running mean and the deviation of the inputs."""

# group: state out of sight
# expect: told US1423 "_instance"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


class Statistics:
    _instance = None

    def __new__(cls):
        if cls._instance is None:
            cls._instance = super().__new__(cls)
            cls._instance._seen = 0
            cls._instance._mean = torch.zeros(8)
            cls._instance._squares = torch.ones(8)
        return cls._instance

    def update(self, batch):
        self._seen += len(batch)
        share = len(batch) / (self._seen + 4)
        self._mean = self._mean + share * (batch.mean(0) - self._mean)
        self._squares = self._squares + share * ((batch - self._mean).square().mean(0) - self._squares)

    def normalise(self, batch):
        return (batch - self._mean) / (self._squares.sqrt() + 1e-3)


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(raw):
        Statistics().update(raw)
        inputs = Statistics().normalise(raw)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), raw.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(3 + 2 * torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
