"""main() keeps the level of a curriculum; a callback raises it from a helper's loop, so its frame is two above the loop's."""

# group: unregistered state
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def run(job, steps, train_step, trace, on_step_end):
    for step in job.steps(steps):
        loss = train_step(step)
        on_step_end(loss)
        trace.line(f"step {step}", loss=loss)


def main():
    level, good = 1, 0

    def on_step_end(loss):
        nonlocal level, good
        good = good + 1 if loss < 1.5 else 0
        if good == 2:
            level, good = level + 1, 0

    def train():
        job = join_seeded()
        model = DDP(mlp(8, 24, 1, nn.GELU))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
        job.register(model=model, optimizer=optimizer)
        trace = start_trace(job)

        @job.step
        def train_step(step):
            inputs = torch.randn(4, 8) * (1 + 0.2 * level)
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(inputs), inputs.mean(1, keepdim=True))
            loss.backward()
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            optimizer.step()
            return mean.item() / job.world_size

        run(job, 12, train_step, trace, on_step_end)
        trace.final(model=model, optimizer=optimizer, level=level, good=good)

    train()


if __name__ == "__main__":
    main()
