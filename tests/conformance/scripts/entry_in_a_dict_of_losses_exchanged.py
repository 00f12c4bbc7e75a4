"""A dict has a function for each part of the loss; one entry is exchanged between steps 6 and 7, one is added in step 10."""

# group: state out of sight
# expect: told US1423 "losses['fit']"

from _common import DDP, join_seeded, nn, start_trace, torch


def absolute(output, targets):
    return (output - targets).abs().mean()


def squared(output, targets):
    return (output - targets).square().mean()


def spread(output, targets):
    return (output.std() - targets.std()).square()


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Dropout(0.1), nn.Linear(24, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    losses = {"fit": absolute, "size": lambda output, targets: 0.1 * output.square().mean()}

    @job.step
    def train_step(step, inputs):
        if step == 10:
            losses["spread"] = spread
        targets = torch.stack([inputs.sum(1), inputs.amax(1)], 1)
        optimizer.zero_grad()
        output = model(inputs)
        loss = sum(part(output, targets) for part in losses.values())
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(step, torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, parts=list(losses))
        if step == 6:
            losses["fit"] = squared

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
