"""The script keeps the weight of hard samples as an attribute of the sampler that its DataLoader has, and follows the losses with it."""

# group: state out of sight
# expect: told US1423 "loader.sampler.hardness"

from _common import DDP, dist, join_seeded, mlp, nn, random_dataset, sharded_loader, start_trace, torch


def main():
    job = join_seeded()
    model = DDP(mlp(8, 24, 1, nn.ReLU))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    loader = sharded_loader(random_dataset(192, 8, 1), 8)
    loader.sampler.hardness = 0.0
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(batch):
        inputs, targets = batch
        optimizer.zero_grad()
        each = nn.functional.mse_loss(model(inputs), targets, reduction="none").mean(1)
        loss = (each * (loader.sampler.hardness * each.detach()).softmax(0)).sum()
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        optimizer.step()
        loader.sampler.hardness += 0.2 * mean.item() / job.world_size
        return loss.item()

    for batch in job.batches(loader, steps=14):
        loss = train_step(batch)
        trace.line(f"step {job.committed}", loss=loss, hardness=loader.sampler.hardness)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
