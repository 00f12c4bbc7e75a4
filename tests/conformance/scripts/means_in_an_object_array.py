"""A numpy array of objects holds a running mean for each class as a plain float, or None for a class not seen yet."""

# group: state out of sight
# expect: told US1423 "means[0]"

import numpy
from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 4, nn.ReLU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    means = numpy.array([None] * 4, dtype=object)

    @job.step
    def train_step(inputs, labels):
        optimizer.zero_grad()
        losses = nn.functional.cross_entropy(model(inputs), labels, reduction="none")
        for label, value in zip(labels.tolist(), losses.tolist(), strict=True):
            means[label] = value if means[label] is None else 0.7 * means[label] + 0.3 * value
        loss = (losses / torch.tensor([means[label] for label in labels.tolist()])).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(6, 8), torch.randint(4, (6,)))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
