"""From step 5 on the default dtype is float64: noise and targets are drawn in it, from another part of the stream."""

# group: state out of sight
# expect: bitwise

from _common import DDP, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    inputs = torch.randn(64, 8)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(step):
        if step == 5:
            torch.set_default_dtype(torch.float64)
        batch = inputs[torch.randint(64, (4,))]
        noise = 0.1 * torch.randn(4, 8)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model((batch + noise).float()), batch.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        return loss.item()

    for step in job.steps(14):
        loss = train_step(step)
        trace.line(f"step {step}", loss=loss, dtype=str(torch.get_default_dtype()))

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
