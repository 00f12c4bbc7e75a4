"""Each parameter keeps its last gradient as an attribute, a tensor; the next step goes against what has turned round."""

# group: state out of sight
# expect: told US1423 "model.module.0.bias.last"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 1))
    model = DDP(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    loader = sharded_loader(random_dataset(192, 8, 1), 4)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)

    @job.step
    def train_step(inputs, targets):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        for p in net.parameters():
            fresh = p.grad.clone()
            if hasattr(p, "last"):
                p.grad *= torch.where(p.last * fresh > 0, 1.2, 0.5)
            p.last = fresh
        optimizer.step()
        return loss.item()

    for inputs, targets in job.batches(loader, steps=12):
        loss = train_step(inputs, targets)
        trace.line(f"step {job.committed}", loss=loss)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
