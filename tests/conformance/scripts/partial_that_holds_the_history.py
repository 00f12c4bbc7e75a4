"""functools.partial binds a list of losses to the function that weighs samples, and the function appends to it."""

# group: state out of sight
# expect: told US1423 "weights_of.keywords['history']"

import functools

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def weigh(losses, power, *, history):
    history.append(losses.detach().mean())
    usual = torch.stack(history[-4:]).mean()
    return (losses.detach() / usual).clamp(0.2, 5).pow(power)


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    weights_of = functools.partial(weigh, power=0.5, history=[])

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        losses = (model(inputs) - inputs.sum(1, keepdim=True)).square().squeeze(1)
        loss = (weights_of(losses) * losses).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
