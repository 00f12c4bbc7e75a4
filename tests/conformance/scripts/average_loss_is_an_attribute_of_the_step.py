"""The step function keeps its average loss as an attribute of itself, and weights the next step's loss by it."""

# group: state out of sight
# expect: told US1423 "train_step.average"

from _common import DDP, dist, join_seeded, nn, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        (loss / (0.1 + train_step.average)).backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        train_step.average += 0.3 * (mean.item() / job.world_size - train_step.average)
        return loss.item()

    train_step.average = 1.0
    for step in job.steps(12):
        loss = train_step(torch.randn(4, 8))
        trace.line(f"step {step}", loss=loss, average=train_step.average)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
