"""In steps 7 and 10 the step itself adds a forward hook that dampens what a layer gives, one for each."""

# group: state out of sight
# expect: told US1423 "model.module.2._forward_hooks[0]"

from _common import DDP, join_seeded, nn, start_trace, torch


def damp(module, inputs, output):
    return 0.7 * output


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(step, inputs):
        if step in (7, 10):
            net[2].register_forward_hook(damp)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(step, torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
