"""The script counts bad steps in an attribute of its schedule and skips the schedule's step while there are too many."""

# group: state out of sight
# expect: bitwise

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda count: 0.8**count)
    schedule.bad, schedule.best = 0, float("inf")
    job.register(model=model, optimizer=optimizer, schedule=schedule)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        return mean.item() / job.world_size

    for step in job.steps(14):
        loss = train_step(torch.randn(4, 8))
        if loss < schedule.best:
            schedule.best, schedule.bad = loss, 0
        else:
            schedule.bad += 1
        if schedule.bad >= 2:
            schedule.step()
            schedule.bad = 0
        trace.line(f"step {step}", loss=loss, bad=schedule.bad)

    trace.final(model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    main()
