"""A hook for the forward of all modules, known to torch alone, counts the calls of linear layers and warms their outputs up."""

# group: state out of sight
# expect: told US1423 "global_forward_hooks[0].calls"

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def warm_up_activations(until):
    calls = 0

    def hook(module, inputs, output):
        nonlocal calls
        if not isinstance(module, nn.Linear):
            return None
        calls += 1
        return output * min(1.0, 0.2 + calls / until)

    nn.modules.module.register_module_forward_hook(hook)


def main():
    job = join_seeded()
    warm_up_activations(until=24)
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
