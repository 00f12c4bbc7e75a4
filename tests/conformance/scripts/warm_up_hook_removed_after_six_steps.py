"""A hook that takes part of a layer's output away is there from the start and is removed after six steps."""

# group: state out of sight
# expect: told US1423 "net.0._forward_hooks[0]"

from _common import DDP, join_seeded, nn, random_dataset, sharded_loader, start_trace, torch


class WarmUp:
    def __init__(self, layer, steps):
        self.handle = layer.register_forward_hook(lambda module, inputs, output: 0.3 * output)
        self.left = steps

    def step(self):
        self.left -= 1
        if self.left == 0:
            self.handle.remove()


def main():
    job = join_seeded()
    net = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 1))
    model = DDP(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = sharded_loader(random_dataset(192, 8, 1), 4)
    job.register(model=model, optimizer=optimizer)
    trace = start_trace(job)
    warm_up = WarmUp(net[0], 6)

    @job.step
    def train_step(inputs, targets):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        warm_up.step()
        return loss.item()

    for inputs, targets in job.batches(loader, steps=12):
        loss = train_step(inputs, targets)
        trace.line(f"step {job.committed}", loss=loss, left=warm_up.left)

    trace.final(model=model, optimizer=optimizer)


if __name__ == "__main__":
    main()
