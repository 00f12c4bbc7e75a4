"""The mean of an epoch divides by a count that its loop has made: a newcomer that passes by an epoch would divide by zero."""

# group: unregistered state
# expect: told US4712 "batches_done"

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, start_trace, torch
from torch.utils.data import DataLoader, DistributedSampler


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0, threshold=0.2)
    data = random_dataset(48, 8, 1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    job.register(model=model, optimizer=optimizer, schedule=schedule)
    trace = start_trace(job)

    @job.step
    def train_step(batch):
        inputs, targets = batch
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        return mean.item() / job.world_size

    for epoch in range(4):
        sampler.set_epoch(epoch)
        total, batches_done = 0.0, 0
        for batch in job.batches(loader):
            loss = train_step(batch)
            total += loss
            batches_done += 1
            trace.line(f"step {job.committed}", loss=loss, rate=optimizer.param_groups[0]["lr"])
        schedule.step(total / batches_done)

    trace.final(model=model, optimizer=optimizer, schedule=schedule)


if __name__ == "__main__":
    main()
