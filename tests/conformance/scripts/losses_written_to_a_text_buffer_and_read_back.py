"""The step logs its losses to an io.StringIO and takes the weight of the penalty from the last lines of that log."""

# group: state out of sight
# expect: told US1423 "log"

import io

from _common import DDP, dist, join_seeded, mlp, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    log = io.StringIO()

    @job.step
    def train_step(inputs):
        recent = [float(line) for line in log.getvalue().splitlines()[-3:]]
        weight = 0.01 * sum(recent) / len(recent) if recent else 0.01
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        penalty = sum(p.square().sum() for p in model.parameters())
        (loss + weight * penalty).backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        print(mean.item() / job.world_size, file=log)
        optimizer.step()
        return loss.item(), weight

    for step in job.steps(14):
        loss, weight = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, weight=weight)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
